"""Making runs, and recording each one however it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from mgpubench import __version__
from mgpubench.analysis.findings.catalogue import findings_of
from mgpubench.analysis.findings.kind import Finding, MeasuredRun
from mgpubench.analysis.gpu_metrics import add_gpu_figures
from mgpubench.analysis.metrics import others_cpu_share, summarize, warmup_s, was_compiled
from mgpubench.config.machine_facts import Machine, fingerprint_of
from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import HALF_PRECISIONS, IMAGE_FOLDER
from mgpubench.errors import BenchError, Interrupted, RunFailed, SessionEnded
from mgpubench.launch.supervisor import Launcher
from mgpubench.machine.cpu_usage import cpu_time
from mgpubench.results.rank_record import RankRecord
from mgpubench.results.schema import (
    MACHINES_APART,
    METHOD_VERSION,
    SCHEMA_VERSION,
    Figures,
    ModelFacts,
    RunRecord,
    Status,
    StepRecord,
    run_id,
)
from mgpubench.results.session_folder import Session
from mgpubench.session.prepare import Workload
from mgpubench.session.telemetry import (
    NO_TELEMETRY,
    Latest,
    Telemetry,
    lost_gpu,
    samples_of,
    uuids_of,
)
from mgpubench.session.workers import launch_run


class Display(Protocol):
    """What a person sees while a session runs."""

    def notice(self, text: str) -> None:
        """Show something that matters for reading the results."""

    def add_runs(self, runs: Sequence[RunConfig]) -> None:
        """These runs will be made, after those that were added before."""

    def begin_run(self, config: RunConfig) -> None:
        """A run starts."""

    def on_steps(self, steps: int) -> None:
        """The present run has done so many steps."""

    def on_loss(self, loss: float) -> None:
        """The mean loss of the last steps, over all ranks."""

    def on_devices(self, latest: Latest) -> None:
        """The last sample of each device."""

    def end_run(self, record: RunRecord, error: BenchError | None) -> None:
        """A run has ended, with or without figures."""

    def finding(self, config: RunConfig, finding: Finding) -> None:
        """There is a finding about the figures of a run."""

    def judge_endurance(self, records: Sequence[RunRecord]) -> None:
        """A session that was to last has ended early, with these rows."""


@dataclass(frozen=True, slots=True)
class Sitting:
    """A call that makes runs of a session."""

    number: int = 1
    """1 for the call that began the session, 2 for the first `--resume`, and so on."""
    planned_rounds: int = 0
    """Rounds that the session began with."""
    is_sequential: bool = False
    """True if the session was to go on until it is decided."""

    def rounds_added(self, number: int) -> int | None:
        """How many rounds a round is beyond the planned ones; None if their number is fixed."""
        if not self.is_sequential and number <= self.planned_rounds:
            return None
        return max(0, number - self.planned_rounds)


class Recorder:
    """Makes runs, and records each one however it ends."""

    def __init__(
        self,
        session: Session,
        workload: Workload,
        display: Display,
        sitting: Sitting,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self._session = session
        self._workload = workload
        self._display = display
        self._sitting = sitting
        self._telemetry = telemetry

    @property
    def folder(self) -> Path:
        """The folder of the session."""
        return self._session.folder

    def run(self, launcher: Launcher, config: RunConfig) -> RunRecord:
        """Make one run, and write its row before the next one begins.

        Raises:
            BenchError: Interrupted after a signal, or if the row cannot be written.
        """
        identity = self._identity(config)
        self._display.begin_run(config)
        self._telemetry.begin_run(identity["run_id"])
        before = cpu_time()
        try:
            ranks = launch_run(
                launcher, config, partial(self._on_steps, config), on_loss=self._display.on_loss
            )
        except (Interrupted, SessionEnded) as error:
            try:
                self._write_failure(identity, status_of(error), error)
            finally:
                raise error
        except BenchError as error:
            self._telemetry.end_run()
            return self._write_failure(identity, "failed", self._lost_gpu(config) or error)
        others = others_cpu_share(before, cpu_time(), ranks[: config.ranks_per_node[0]])
        traces = samples_of(self._telemetry.end_run(), uuids_of(config, self._workload.machine))
        figures = add_gpu_figures(summarize(config, ranks, others), traces, ranks)
        return self._write_result(identity, config, ranks, figures)

    def _on_steps(self, config: RunConfig, steps: int) -> None:
        """Show how far a run is, and end it if it has lost a GPU: its ranks may hang then."""
        self._display.on_steps(steps)
        if latest := self._telemetry.latest():
            self._display.on_devices(latest)
        if error := self._lost_gpu(config):
            raise error

    def _lost_gpu(self, config: RunConfig) -> RunFailed | None:
        return lost_gpu(config, self._workload.machine, self._telemetry.latest())

    def _write_result(
        self,
        identity: dict[str, Any],
        config: RunConfig,
        ranks: Sequence[RankRecord],
        figures: Figures,
    ) -> RunRecord:
        findings = findings_of(MeasuredRun(config, ranks, figures))
        codes = ";".join(finding.code for finding in findings)
        identity |= {
            "compiled": was_compiled(ranks),
            "warmup_s": warmup_s(ranks, config.steps),
        }
        record = RunRecord(**identity, status="ok", findings=codes, **asdict(figures))
        self._append(record, step_records(record.run_id, config, ranks), None)
        for finding in findings:
            self._display.finding(config, finding)
        return record

    def _write_failure(
        self, identity: dict[str, Any], status: Status, error: BenchError
    ) -> RunRecord:
        record = RunRecord(**identity, status=status, error=error.message, **asdict(Figures()))
        self._append(record, (), error)
        return record

    @property
    def _machines(self) -> list[Machine]:
        return [self._workload.machine, *(other.machine for other in self._workload.others)]

    def _append(
        self, record: RunRecord, steps: Iterable[StepRecord], error: BenchError | None
    ) -> None:
        """Write a row and show it. What cannot be written is shown all the same."""
        try:
            self._session.append(record, steps)
        except BenchError:
            self._display.end_run(record, error)
            self._display.notice("the line above could not be saved, and is in no file")
            raise
        self._display.end_run(record, error)

    def _identity(self, config: RunConfig) -> dict[str, Any]:
        """All of a row but status, error and figures."""
        machine, model = self._workload.machine, self._workload.models[config.model]
        listing = self._workload.listings.get(config.data)  # paths are private: only its name
        return {
            "schema_version": SCHEMA_VERSION,
            "run_id": run_id(self._session.id, config.position, self._sitting.number),
            "session_id": self._session.id,
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "num_nodes": config.num_nodes,
            "num_parameters": model.num_parameters,
            "parameter_bytes": _parameter_bytes(config, model),
            "model_digest": model.digest,
            "data": f"{IMAGE_FOLDER}{listing.name}" if listing else config.data,
            "dataset_samples": len(listing.samples) if listing else None,
            "dataset_digest": listing.digest if listing else "",
            "loader_workers": config.total_workers if config.uses_folder else None,
            "global_batch": config.global_batch,
            "options": config.options,
            "device_names": device_names(config, self._machines),
            "machine": fingerprint_of(self._machines),
            "torch_version": machine.torch_version,
            "cuda_version": machine.cuda_version,
            "nccl_version": machine.nccl_version,
            "driver_version": machine.driver_version,
            "python_version": machine.python_version,
            "mgpubench_version": __version__,
            "sitting": self._sitting.number,
            "environment": self._workload.environment,
            "method_version": METHOD_VERSION,
            "rounds_added": self._sitting.rounds_added(config.round),
            **{name: getattr(config, name) for name in _COPIED_FROM_CONFIG},
        }


_COPIED_FROM_CONFIG = (
    "round", "position", "variant", "variant_number", "mode", "effective_mode", "device_type",
    "num_devices", "world_size", "backend", "model", "image_size", "precision", "channels_last",
    "compiled", "scaling", "optimizer", "accumulate",
    "batch_per_device", "workers_per_device", "threads_per_rank", "warmup_steps", "steps", "seed",
)  # fmt: skip


def step_records(
    run_id: str, config: RunConfig, ranks: Sequence[RankRecord]
) -> Iterator[StepRecord]:
    """The rows of steps.csv for a run, rank by rank."""
    for rank in ranks:
        steps = zip(rank.step_times_s, rank.data_waits_s, rank.samples, strict=True)
        for step, (step_time_s, data_wait_s, samples) in enumerate(steps, start=1):
            yield StepRecord(
                run_id=run_id,
                rank=rank.rank,
                step=step,
                phase="warmup" if step <= config.warmup_steps else "measured",
                step_time_s=step_time_s,
                data_wait_s=data_wait_s,
                samples=samples,
            )


def _parameter_bytes(config: RunConfig, model: ModelFacts) -> int:
    """The size of the weights, which the preflight knows in their own format."""
    return (
        2 * model.num_parameters if config.precision in HALF_PRECISIONS else model.parameter_bytes
    )


def status_of(error: BenchError) -> Status:
    """The status of a run during which the session ended."""
    if isinstance(error, SessionEnded) and not error.was_interrupted:
        return "failed"
    return "interrupted"


def device_names(config: RunConfig, machines: Sequence[Machine]) -> str:
    """The models of the devices that took part, with counts: `1x NVIDIA A + 1x NVIDIA B`.

    Several machines are separated: `2x NVIDIA A | 2x NVIDIA A`.
    """
    if config.device_type == "cpu":
        shares = zip(config.devices_per_node or (config.num_devices,), machines, strict=False)
        names = [f"{count}x {machine.cpu_model or 'CPU'}" for count, machine in shares]
    else:
        names = [
            _gpu_names(indices, machine)
            for indices, machine in zip(config.indices_by_node, machines, strict=False)
        ]
    return MACHINES_APART.join(names)


def _gpu_names(indices: Sequence[int], machine: Machine) -> str:
    counts = Counter(machine.gpus[index].name for index in sorted(set(indices)))
    return " + ".join(f"{count}x {name}" for name, count in sorted(counts.items()))
