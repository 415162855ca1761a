"""Making runs, and recording each one however it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from mgpubench import __version__
from mgpubench.analysis.findings.catalogue import findings_of
from mgpubench.analysis.findings.kind import Finding, MeasuredRun
from mgpubench.analysis.metrics import others_cpu_share, summarize, was_compiled
from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import Plan
from mgpubench.config.run_config import RunConfig
from mgpubench.errors import BenchError, Interrupted
from mgpubench.launch.supervisor import Supervisor
from mgpubench.machine.cpu_usage import cpu_time
from mgpubench.results.rank_record import RankRecord
from mgpubench.results.schema import (
    SCHEMA_VERSION,
    Figures,
    RunRecord,
    Status,
    StepRecord,
    run_id,
)
from mgpubench.results.session_folder import Session
from mgpubench.session.prepare import Workload
from mgpubench.session.workers import launch_run
from mgpubench.training.data.listing import ImageListing


class Display(Protocol):
    """What a person sees while a session runs."""

    def notice(self, text: str) -> None:
        """Show something that matters for reading the results."""

    def begin_session(self, plan: Plan) -> None:
        """The runs are about to start."""

    def begin_run(self, config: RunConfig) -> None:
        """A run starts."""

    def on_steps(self, steps: int) -> None:
        """The present run has done so many steps."""

    def end_run(self, record: RunRecord, error: BenchError | None) -> None:
        """A run has ended, with or without figures."""

    def finding(self, config: RunConfig, finding: Finding) -> None:
        """There is a finding about the figures of a run."""


class Recorder:
    """Makes runs, and records each one however it ends."""

    def __init__(self, session: Session, workload: Workload, display: Display) -> None:
        self.records: list[RunRecord] = []
        self._session = session
        self._workload = workload
        self._display = display

    @property
    def folder(self) -> Path:
        """The folder of the session."""
        return self._session.folder

    def run(self, supervisor: Supervisor, config: RunConfig) -> RunRecord:
        """Make one run, and write its row before the next one begins.

        Raises:
            BenchError: Interrupted after a signal, or if the row cannot be written.
        """
        identity = self._identity(config)
        self._display.begin_run(config)
        before = cpu_time()
        try:
            ranks = launch_run(supervisor, config, self._display.on_steps)
        except Interrupted as error:
            try:
                self._write_failure(identity, "interrupted", error)
            finally:
                raise error
        except BenchError as error:
            return self._write_failure(identity, "failed", error)
        cores = self._workload.machine.usable_cores
        others = others_cpu_share(before, cpu_time(), ranks, cores)
        return self._write_result(identity, config, ranks, summarize(config, ranks, others))

    def _write_result(
        self,
        identity: dict[str, Any],
        config: RunConfig,
        ranks: Sequence[RankRecord],
        figures: Figures,
    ) -> RunRecord:
        findings = findings_of(MeasuredRun(config, ranks, figures))
        codes = ";".join(finding.code for finding in findings)
        identity |= {"compiled": was_compiled(ranks)}
        record = RunRecord(**identity, status="ok", findings=codes, **asdict(figures))
        self._session.append(record, _step_records(record.run_id, config, ranks))
        self.records.append(record)
        self._display.end_run(record, None)
        for finding in findings:
            self._display.finding(config, finding)
        return record

    def _write_failure(
        self, identity: dict[str, Any], status: Status, error: BenchError
    ) -> RunRecord:
        record = RunRecord(**identity, status=status, error=error.message, **asdict(Figures()))
        self._session.append(record, ())
        self.records.append(record)
        self._display.end_run(record, error)
        return record

    def _identity(self, config: RunConfig) -> dict[str, Any]:
        """All of a row but status, error and figures."""
        machine, workload = self._workload.machine, self._workload
        return {
            "schema_version": SCHEMA_VERSION,
            "run_id": run_id(self._session.id, config.position),
            "session_id": self._session.id,
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "num_nodes": 1,
            "num_parameters": workload.model.num_parameters,
            "parameter_bytes": workload.model.parameter_bytes,
            "model_digest": workload.model.digest,
            "data": _data_name(config, workload.listing),
            "dataset_samples": workload.dataset_samples,
            "dataset_digest": workload.listing.digest if workload.listing else "",
            "loader_workers": config.total_workers if config.uses_folder else None,
            "global_batch": config.global_batch,
            "options": config.options,
            "device_names": _device_names(config, machine),
            "machine": machine.fingerprint,
            "torch_version": machine.torch_version,
            "cuda_version": machine.cuda_version,
            "nccl_version": machine.nccl_version,
            "driver_version": machine.driver_version,
            "python_version": machine.python_version,
            "mgpubench_version": __version__,
            **{name: getattr(config, name) for name in _COPIED_FROM_CONFIG},
        }


_COPIED_FROM_CONFIG = (
    "round", "position", "mode", "effective_mode", "device_type", "num_devices", "world_size",
    "backend", "model", "image_size", "precision", "channels_last", "compiled", "scaling",
    "batch_per_device", "workers_per_device", "threads_per_rank", "warmup_steps", "steps", "seed",
)  # fmt: skip


def _step_records(
    run_id: str, config: RunConfig, ranks: Sequence[RankRecord]
) -> Iterator[StepRecord]:
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


def _data_name(config: RunConfig, listing: ImageListing | None) -> str:
    """The data as rows name it. For a folder that is only its name, since paths are private."""
    if listing is None:
        return config.data
    return f"imagefolder:{listing.name}"


def _device_names(config: RunConfig, machine: Machine) -> str:
    """The models of the devices that took part, with counts: `1x NVIDIA A + 1x NVIDIA B`."""
    if config.device_type == "cpu":
        return f"{config.num_devices}x {machine.cpu_model or 'CPU'}"
    counts = Counter(machine.gpus[index].name for index in sorted(set(config.device_indices)))
    return " + ".join(f"{count}x {name}" for name, count in sorted(counts.items()))
