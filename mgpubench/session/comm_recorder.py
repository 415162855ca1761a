"""Making runs of collectives, and recording each size as soon as all ranks have measured it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from mgpubench import __version__
from mgpubench.analysis.metrics import call_times_s, summarize_size
from mgpubench.config.comm_plan import TIMED_BLOCKS, CommConfig
from mgpubench.config.machine_facts import Machine, fingerprint_of
from mgpubench.errors import BenchError, Interrupted, RunFailed, SessionEnded
from mgpubench.launch.block_times import BlockTimesReader, SizeTimes
from mgpubench.launch.supervisor import Launcher
from mgpubench.results.comm import COMM_CSV, CommFigures, CommRecord
from mgpubench.results.schema import SCHEMA_VERSION, Status, run_id
from mgpubench.results.session_folder import Session
from mgpubench.session.recorder import device_names, status_of
from mgpubench.session.workers import CommOrder


class CommDisplay(Protocol):
    """What a person sees while collectives are measured."""

    def notice(self, text: str) -> None:
        """Show something that matters for reading the results."""

    def add_runs(self, runs: Sequence[CommConfig]) -> None:
        """These runs will be made."""

    def begin_run(self, config: CommConfig) -> None:
        """A run starts."""

    def on_size(self, record: CommRecord) -> None:
        """One more size of the run is measured."""

    def end_run(self, records: Sequence[CommRecord], error: BenchError | None) -> None:
        """A run has ended, with rows for all sizes, or with an error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where the runs of a session are made, as their rows say it."""

    machines: Sequence[Machine]
    """This one, and then the others of a session on several."""
    environment: str
    """Digest of the environment variables that change the speed."""
    order_seed: int


class CommRecorder:
    """Makes runs, and records each one however it ends."""

    def __init__(
        self, launcher: Launcher, session: Session, place: Place, display: CommDisplay
    ) -> None:
        self.records: list[CommRecord] = []
        """All rows so far."""
        self.session = session
        self.display = display
        self._launcher = launcher
        self._place = place

    def run(self, config: CommConfig) -> bool:
        """Make one run, and write its rows. False if it failed.

        Raises:
            BenchError: Interrupted after a signal; SessionEnded if another machine has ended it;
                or why a row cannot be written.
        """
        self.display.begin_run(config)
        job = CommOrder(config=config).job(self._launcher)
        watch = _Watch(self, config, job.folder, self._identity(config))
        error: BenchError | None = None
        try:
            of_ranks = self._launcher.run(replace(job, watch=watch, finish=watch.record_sizes))
            watch.record_sizes(of_ranks)
        except Interrupted:
            watch.record_failure("interrupted", "interrupted")
            raise
        except SessionEnded as found:
            watch.record_failure(status_of(found), found.message)
            raise
        except BenchError as found:
            error = found
            watch.record_failure("failed", found.message)
        self.display.end_run(watch.records, error)
        return error is None

    def _identity(self, config: CommConfig) -> dict[str, Any]:
        """All of a row but its status, its size and its figures."""
        machine, run = self._place.machines[0], config.run
        return {
            "schema_version": SCHEMA_VERSION,
            "run_id": run_id(self.session.id, run.position),
            "session_id": self.session.id,
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "operation": config.operation,
            "model": config.model,
            "warmup_calls": config.warmup_calls,
            "seed": self._place.order_seed,
            "device_names": device_names(run, self._place.machines),
            "machine": fingerprint_of(self._place.machines[: run.num_nodes]),
            "environment": self._place.environment,
            "mgpubench_version": __version__,
            **{name: getattr(run, name) for name in _COPIED_FROM_RUN},
            **{name: getattr(machine, name) for name in _COPIED_FROM_MACHINE},
        }


_COPIED_FROM_RUN = (
    "round", "position", "device_type", "num_devices", "backend", "threads_per_rank",
    "num_nodes",
)  # fmt: skip
_COPIED_FROM_MACHINE = (
    "torch_version", "cuda_version", "nccl_version", "driver_version", "python_version",
)  # fmt: skip


class _Watch:
    """What the parent does while the ranks measure: records sizes, and ends what takes too long."""

    def __init__(
        self, recorder: CommRecorder, config: CommConfig, folder: Path, identity: dict[str, Any]
    ) -> None:
        self.records: list[CommRecord] = []
        self._recorder = recorder
        self._config = config
        self._folder = folder
        self._identity = identity
        run = config.run
        self._times = BlockTimesReader(folder, run.ranks_of_node(0), run.world_size)

    def __call__(self, elapsed_s: float) -> None:
        self.record_sizes()
        timeout_s = self._config.run.timeout_s
        if elapsed_s > timeout_s:
            raise RunFailed(
                f"{self._config.label} did not end within --timeout {timeout_s:g} s: "
                f"{len(self.records)} of {len(self._config.sizes)} sizes done",
                "Raise --timeout, or use fewer --calls, or less than "
                f"{self._config.memory_option}.",
            )

    def record_failure(self, status: Status, error: str) -> None:
        """Write a row for the size that was not finished; its figures are unknown."""
        done = len(self.records)
        if done < len(self._config.sizes):
            row = self._row(self._config.sizes[done], CommFigures(), status=status, error=error)
            self._append(row)

    def record_sizes(self, of_ranks: Sequence[Sequence[SizeTimes]] = ()) -> None:
        """Write a row for each size that all ranks have measured since the last call.

        Those of other machines come at the end of the run, with what all ranks have returned.
        """
        config = self._config
        self._times.add_others(of_ranks)
        for size_bytes, block_times_s in self._times.new_sizes():
            times_s = call_times_s(block_times_s, config.block_calls(size_bytes))
            figures = summarize_size(config.operation, config.run.num_devices, size_bytes, times_s)
            record = self._row(size_bytes, figures, status="ok")
            self._append(record)
            self._recorder.display.on_size(record)

    def _row(
        self, size_bytes: int, figures: CommFigures, status: Status, error: str = ""
    ) -> CommRecord:
        return CommRecord(
            **self._identity,
            status=status,
            error=error,
            size_bytes=size_bytes or None,
            buckets=dict(self._config.buckets).get(size_bytes),
            blocks=TIMED_BLOCKS,
            calls=TIMED_BLOCKS * self._config.block_calls(size_bytes),
            **asdict(figures),
        )

    def _append(self, record: CommRecord) -> None:
        self._recorder.session.append_to(COMM_CSV, [record])
        self.records.append(record)
        self._recorder.records.append(record)
