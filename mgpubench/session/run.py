"""One call of `mgpubench run`: from a request to rows on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from mgpubench import __version__
from mgpubench.config.plan import Plan, make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import BUILTIN_MODELS, NUM_SYNTHETIC_CLASSES, Machine
from mgpubench.errors import BenchError
from mgpubench.format import format_count, shell_path
from mgpubench.launch.scratch import in_scratch
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Needs, Supervisor, open_supervisor
from mgpubench.machine import host
from mgpubench.machine.advice import examine
from mgpubench.machine.system import Survey, System, TorchBuild, describe_system
from mgpubench.results import session_folder
from mgpubench.results.schema import ModelFacts, RunRecord
from mgpubench.session.recorder import Display, Recorder, Workload, listing_file
from mgpubench.session.resume import check_unchanged, load_session, read_progress
from mgpubench.training.data.listing import ImageListing, check_enough_images, list_images

PASSING = ("busy", "busy-gpu", "throttled")
"""Advice about what is so now, and may be otherwise in a minute."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished session."""

    folder: Path
    records: list[RunRecord]


@dataclass(frozen=True, slots=True)
class Call:
    """How a session is run: what it has of the command line beside the request."""

    argv: Sequence[str]
    display: Display
    stop: StopSignal
    fail_fast: bool = False
    """End the session at the first run that fails."""


def run_session(request: Request, call: Call) -> Outcome:
    """Make every run that a request asks for, in the plan's order, and write each down at once.

    A failed run is written as a row without figures, and the others go on.

    Raises:
        BenchError: if nothing could be started; Interrupted after a signal.
    """
    session_folder.check_writable(Path(request.out))
    listing = _list_images(request, call.stop)
    with open_supervisor(call.stop, _needs(request)) as supervisor:
        place = _look_around(supervisor)
        plan = make_plan(request, place.machine, _num_classes(listing))
        _tell(call.display, (*plan.notices, *(listing.warnings if listing else ())))
        facts = _preflight(supervisor, plan, listing)
        # After what may refuse the request: beside a refusal they say nothing.
        _tell(call.display, _disturbances(place, plan))
        plan = _with_classes(plan, facts.num_classes)
        workload = Workload(place.machine, facts, listing)
        document = {
            **_document(request, call.argv, plan, place),
            **_installed(place),
            **_trained(workload),
        }
        with session_folder.open_session(Path(request.out), document, datetime.now(UTC)) as session:
            return _make_runs(supervisor, plan, Recorder(session, workload, call.display), call)


def resume_session(folder: Path, timeout_s: float | None, call: Call) -> Outcome:
    """Make the runs of a session that are missing or failed, in its own order and folder.

    `timeout_s` is for them where it is not None.

    Raises:
        BenchError: if it is no session, or not on this machine as it is now.
    """
    saved = load_session(folder)
    with session_folder.reopen_session(folder, saved.id) as session:
        progress = read_progress(saved)
        _tell(call.display, (*session.repairs, *progress.warnings))
        if not progress.missing.runs:
            _tell(call.display, [f"nothing is missing in {folder}"])
            return Outcome(folder, list(progress.finished))
        listing = _list_images(saved.request, call.stop)
        with open_supervisor(call.stop, _needs(saved.request)) as supervisor:
            place = _look_around(supervisor)
            # First of all: what the preflight would say on another machine is beside the point.
            packages = {"system.packages": place.system.packages}
            check_unchanged(saved, {**_installed(place), **packages})
            workload = Workload(place.machine, _preflight(supervisor, saved.plan, listing), listing)
            check_unchanged(saved, _trained(workload))
            _tell(
                call.display,
                (*(listing.warnings if listing else ()), *_disturbances(place, saved.plan)),
            )
            session.keep_steps_of({record.run_id for record in progress.finished})
            recorder = Recorder(session, workload, call.display)
            recorder.records.extend(progress.finished)
            plan = _with_timeout(progress.missing, timeout_s)
            return _make_runs(supervisor, plan, recorder, call)


def _with_timeout(plan: Plan, timeout_s: float | None) -> Plan:
    if timeout_s is None:
        return plan
    return replace(plan, runs=tuple(replace(run, timeout_s=timeout_s) for run in plan.runs))


def _tell(display: Display, notices: Iterable[str]) -> None:
    for notice in notices:
        display.notice(notice)


def _make_runs(supervisor: Supervisor, plan: Plan, recorder: Recorder, call: Call) -> Outcome:
    call.display.begin_session(plan)
    folder = recorder.folder
    try:
        for number, config in enumerate(plan.runs, start=1):
            record = recorder.run(supervisor, config)
            if call.fail_fast and not record.is_ok and number < len(plan.runs):
                left = format_count(len(plan.runs) - number, "run")
                call.display.notice(f"--fail-fast: {left} left out{_resume_hint(plan, recorder)}")
                break
        call.stop.check()
    except BenchError:
        finished = format_count(sum(record.is_ok for record in recorder.records), "finished run")
        call.display.notice(f"{finished} kept in {folder}{_resume_hint(plan, recorder)}")
        raise
    return Outcome(folder, recorder.records)


def _resume_hint(plan: Plan, recorder: Recorder) -> str:
    """How to go on, if anything is left to be made."""
    made = {record.position for record in recorder.records if record.is_ok}
    if all(run.position in made for run in plan.runs):
        return ""
    return f"; go on with: mgpubench run --resume {shell_path(recorder.folder)}"


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
        with open_supervisor(stop, "torch") as supervisor:
            num_gpus = supervisor.call("mgpubench.machine.cuda:count_gpus")
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
        return list_images(Path(request.data))


def _needs(request: Request) -> Needs:
    is_built_in = request.smoke if request.model is None else request.model in BUILTIN_MODELS
    return "training" if is_built_in and not request.uses_folder else "torchvision"


def _num_classes(listing: ImageListing | None) -> int:
    return NUM_SYNTHETIC_CLASSES if listing is None else len(listing.classes)


def _with_classes(plan: Plan, num_classes: int) -> Plan:
    """The plan for the classes that the model really has: a user's own decides that itself."""
    runs = tuple(replace(config, num_classes=num_classes) for config in plan.runs)
    return replace(plan, runs=runs)


def _preflight(supervisor: Supervisor, plan: Plan, listing: ImageListing | None) -> ModelFacts:
    """What can be checked of model and data before anything is written."""
    if listing is not None:
        _check_images(plan, listing)
        with in_scratch(supervisor.scratch):
            listing.save_samples(listing_file(supervisor))
        supervisor.call("mgpubench.training.data.loader:check_decoder")
    inputs = {(config.batch_per_device, config.image_size): config for config in plan.runs}
    facts: ModelFacts = supervisor.call(
        "mgpubench.training.preflight:inspect_model",
        list(inputs.values()),
        label=f"--model {plan.runs[0].model}",
        hide_gpus=plan.runs[0].device_type == "cpu",
    )
    if plan.runs[0].compiled:
        supervisor.call("mgpubench.training.compilation:check_compiler", plan.runs[0].device_type)
    return facts


def _check_images(plan: Plan, listing: ImageListing) -> None:
    largest = max(config.global_batch for config in plan.runs)
    check_enough_images(len(listing.samples), largest, listing.root)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the runs are made."""

    machine: Machine
    build: TorchBuild
    system: System


def _look_around(supervisor: Supervisor) -> _Place:
    return _Place(
        machine=supervisor.call("mgpubench.machine.cuda:describe"),
        build=supervisor.call("mgpubench.machine.cuda:describe_build"),
        system=describe_system(),
    )


def _disturbances(place: _Place, plan: Plan) -> Iterator[str]:
    """What at this moment slows the runs down; `mgpubench info` tells of the rest too."""
    # The indices of a plan count from 0: those of other GPUs are of no interest.
    num_used = max(len(set(config.device_indices)) for config in plan.runs)
    survey = Survey(
        system=place.system,
        machine=replace(place.machine, gpus=place.machine.gpus[:num_used]),
        build=place.build,
        torch_error="",
        environment={},
    )
    for advice in examine(survey):
        if advice.code in PASSING:
            yield advice.message


def _installed(place: _Place) -> dict[str, object]:
    """The part of session.json that must be the same before a session is gone on with..."""
    return {
        "machine": asdict(place.machine),
        "environment": host.recorded_environment(os.environ),
        "torch": asdict(place.build),
    }


def _trained(workload: Workload) -> dict[str, object]:
    """... and the part that is known only when model and data have been looked at."""
    listing = workload.listing
    return {
        "dataset": listing
        and {
            "samples": len(listing.samples),
            "classes": len(listing.classes),
            "digest": listing.digest,
            "name": listing.name,
        },
        "model_facts": asdict(workload.model),
    }


def _document(
    request: Request, argv: Sequence[str], plan: Plan, place: _Place
) -> dict[str, object]:
    """The rest of session.json."""
    return {
        "mgpubench_version": __version__,
        "mgpubench_commit": host.own_commit(),
        "argv": list(argv),
        "request": asdict(request),
        "plan": [asdict(config) for config in plan.runs],
        "notices": list(plan.notices),
        "system": asdict(place.system),
    }
