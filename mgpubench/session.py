"""One call of `mgpubench run`: from a request to rows on the disk."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from mgpubench import __version__, host, imagefolder, results
from mgpubench.checks import Finding, check_run
from mgpubench.config import BUILTIN_MODELS, NUM_SYNTHETIC_CLASSES, Machine, RunConfig
from mgpubench.errors import BenchError, Interrupted
from mgpubench.format import format_count
from mgpubench.imagefolder import ImageListing
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from mgpubench.metrics import summarize
from mgpubench.plan import Plan, make_plan
from mgpubench.records import (
    SCHEMA_VERSION,
    Figures,
    ModelFacts,
    RankRecord,
    RunRecord,
    Status,
    StepRecord,
)
from mgpubench.request import Request


class Display(Protocol):
    """What a person sees while a session runs."""

    def notice(self, text: str) -> None:
        """Say something that matters for reading the results."""

    def begin_session(self, plan: Plan) -> None:
        """The runs are about to start."""

    def begin_run(self, config: RunConfig) -> None:
        """A run starts."""

    def on_steps(self, steps: int) -> None:
        """The running run has done so many steps."""

    def end_run(self, record: RunRecord, error: BenchError | None) -> None:
        """A run has ended, with or without figures."""

    def finding(self, config: RunConfig, finding: Finding) -> None:
        """Something to know about the figures of a run."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished session."""

    folder: Path
    records: list[RunRecord]


@dataclass(frozen=True, slots=True)
class _Workload:
    """What all runs of a session train."""

    machine: Machine
    model: ModelFacts
    listing: ImageListing | None

    @property
    def dataset_samples(self) -> int | None:
        return len(self.listing.samples) if self.listing else None


def run_session(
    request: Request, argv: Sequence[str], display: Display, stop: StopSignal
) -> Outcome:
    """Make every run that a request asks for, in the plan's order, and write each down at once.

    A failed run is written as a row without figures, and the others go on.

    Raises:
        BenchError: if nothing could be started; Interrupted after a signal.
    """
    results.check_writable(Path(request.out))
    listing = _list_images(request, stop)
    with open_supervisor(stop, needs_torchvision=_needs_torchvision(request)) as supervisor:
        machine: Machine = supervisor.call("mgpubench.machine:describe")
        plan = make_plan(request, machine)
        for notice in (*plan.notices, *(listing.warnings if listing else ())):
            display.notice(notice)
        workload = _preflight(supervisor, plan, machine, listing)
        session = results.open_session(
            Path(request.out), _document(request, argv, plan, machine), datetime.now(UTC)
        )
        display.begin_session(plan)
        recorder = _Recorder(session, workload, display)
        try:
            for config in plan.runs:
                recorder.run(supervisor, config)
            stop.check()
        except BenchError:
            finished = sum(record.is_ok for record in recorder.records)
            display.notice(f"{format_count(finished, 'finished run')} kept in {session.folder}")
            raise
    return Outcome(session.folder, recorder.records)


def plan_session(request: Request, stop: StopSignal) -> Plan:
    """The plan of a request, without touching a device; torch is asked only for their number.

    Raises:
        BenchError: if the request is impossible.
    """
    if request.wants_cpu:
        plan = make_plan(request, host.assumed_machine(0))
    elif request.gpus is not None and not request.oversubscribe:
        plan = make_plan(request, host.assumed_machine(max(request.gpus)))
    else:
        with open_supervisor(stop, needs_torchvision=False) as supervisor:
            num_gpus = supervisor.call("mgpubench.machine:count_gpus")
        plan = make_plan(request, host.assumed_machine(num_gpus))
    listing = _list_images(request, stop)
    if listing is None:
        return plan
    _check_images(plan, listing)
    return replace(plan, notices=(*plan.notices, *listing.warnings))


def _list_images(request: Request, stop: StopSignal) -> ImageListing | None:
    if not request.uses_folder:
        return None
    # A large folder on a slow disk takes minutes; there is nothing to lose yet.
    with stop.raising():
        return imagefolder.list_images(Path(request.data))


def _needs_torchvision(request: Request) -> bool:
    if request.model is not None:
        return request.uses_folder or request.model not in BUILTIN_MODELS
    return request.uses_folder or not request.smoke


def _preflight(
    supervisor: Supervisor, plan: Plan, machine: Machine, listing: ImageListing | None
) -> _Workload:
    """What can be checked of model and data before anything is written."""
    num_classes = NUM_SYNTHETIC_CLASSES
    if listing is not None:
        num_classes = len(listing.classes)
        _check_images(plan, listing)
        listing.save(_listing_file(supervisor))
        supervisor.call("mgpubench.data:check_decoder")
    inputs = sorted({(config.batch_per_device, config.image_size) for config in plan.runs})
    facts = supervisor.call(
        "mgpubench.models:inspect_model", plan.runs[0].model, num_classes, inputs
    )
    return _Workload(machine, facts, listing)


def _check_images(plan: Plan, listing: ImageListing) -> None:
    largest = max(config.global_batch for config in plan.runs)
    imagefolder.check_enough_images(len(listing.samples), largest, listing.root)


def _listing_file(supervisor: Supervisor) -> Path:
    return supervisor.scratch / "listing.json"


class _Recorder:
    """Makes runs and writes each one down, however it ends."""

    def __init__(self, session: results.Session, workload: _Workload, display: Display) -> None:
        self.records: list[RunRecord] = []
        self._session = session
        self._workload = workload
        self._display = display

    def run(self, supervisor: Supervisor, config: RunConfig) -> None:
        identity = self._identity(config)
        self._display.begin_run(config)
        try:
            ranks = supervisor.launch(config, _listing_file(supervisor), self._display.on_steps)
        except Interrupted as error:
            try:
                self._write_failure(identity, "interrupted", error)
            finally:
                raise error
        except BenchError as error:
            self._write_failure(identity, "failed", error)
        else:
            self._write_result(identity, config, ranks)

    def _write_result(
        self, identity: dict[str, Any], config: RunConfig, ranks: Sequence[RankRecord]
    ) -> None:
        figures = summarize(config, ranks)
        findings = check_run(config, ranks, figures)
        codes = ";".join(finding.code for finding in findings)
        record = RunRecord(**identity, status="ok", findings=codes, **asdict(figures))
        self._session.append(record, _step_records(record.run_id, config, ranks))
        self.records.append(record)
        self._display.end_run(record, None)
        for finding in findings:
            self._display.finding(config, finding)

    def _write_failure(self, identity: dict[str, Any], status: Status, error: BenchError) -> None:
        record = RunRecord(**identity, status=status, error=error.message, **asdict(Figures()))
        self._session.append(record, ())
        self.records.append(record)
        self._display.end_run(record, error)

    def _identity(self, config: RunConfig) -> dict[str, Any]:
        """What tells this run from others: all of its row but status, error and figures."""
        machine, workload = self._workload.machine, self._workload
        return {
            "schema_version": SCHEMA_VERSION,
            "run_id": f"{self._session.id}-{config.position:03d}",
            "session_id": self._session.id,
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "num_nodes": 1,
            "num_parameters": workload.model.num_parameters,
            "parameter_bytes": workload.model.parameter_bytes,
            "data": _data_name(config, workload.listing),
            "dataset_samples": workload.dataset_samples,
            "global_batch": config.global_batch,
            "options": ";".join(f"{name}={value}" for name, value in config.options),
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
    """The data as rows name them: of a folder only its name, since paths are private."""
    if listing is None:
        return config.data
    return f"imagefolder:{Path(listing.root).resolve().name}"


def _device_names(config: RunConfig, machine: Machine) -> str:
    """The models of the devices that took part, with counts: `1x NVIDIA A + 1x NVIDIA B`."""
    if config.device_type == "cpu":
        return f"{config.num_devices}x {machine.cpu_model or 'CPU'}"
    counts = Counter(machine.gpus[index].name for index in sorted(set(config.device_indices)))
    return " + ".join(f"{count}x {name}" for name, count in sorted(counts.items()))


def _document(
    request: Request, argv: Sequence[str], plan: Plan, machine: Machine
) -> dict[str, object]:
    """The content of session.json."""
    return {
        "mgpubench_version": __version__,
        "argv": list(argv),
        "request": asdict(request),
        "plan": [asdict(config) for config in plan.runs],
        "notices": list(plan.notices),
        "machine": asdict(machine),
        "environment": host.recorded_environment(os.environ),
    }
