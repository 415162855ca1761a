"""One call of `mgpubench run`: from a request to rows on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from mgpubench.config.plan import Plan, make_plan
from mgpubench.config.request import Request
from mgpubench.config.types import NUM_SYNTHETIC_CLASSES
from mgpubench.errors import BenchError
from mgpubench.format import format_count, shell_path
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from mgpubench.machine.host import assumed_machine
from mgpubench.results.schema import RunRecord
from mgpubench.results.session_folder import check_writable, open_session, reopen_session
from mgpubench.session.document import called_part, installed_part, load_session, trained_part
from mgpubench.session.prepare import (
    Workload,
    ask_torch,
    check_images,
    disturbances,
    list_data,
    preflight,
    take_survey,
)
from mgpubench.session.recorder import Display, Recorder
from mgpubench.session.resume import check_unchanged, read_progress
from mgpubench.session.workers import COUNT_GPUS, TORCH, preload_for
from mgpubench.training.data.listing import ImageListing


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished session."""

    folder: Path
    records: list[RunRecord]


@dataclass(frozen=True, slots=True)
class Call:
    """What a session gets from the command line besides the request."""

    argv: Sequence[str]
    display: Display
    stop: StopSignal
    fail_fast: bool = False
    """End the session at the first run that fails."""


def run_session(request: Request, call: Call) -> Outcome:
    """Make every run of a request, in the order of the plan, and record each one at once.

    A failed run is recorded without figures, and the others follow.

    Raises:
        BenchError: if nothing could be started; Interrupted after a signal.
    """
    check_writable(Path(request.out))
    listing = list_data(request, call.stop)
    with open_supervisor(call.stop, preload_for(request)) as supervisor:
        machine, build = ask_torch(supervisor)
        survey = take_survey(machine, build)
        plan = make_plan(request, machine, _num_classes(listing))
        _notify(call.display, (*plan.notices, *(listing.warnings if listing else ())))
        facts = preflight(supervisor, plan, listing)
        # Only now: next to a refusal they would not matter.
        _notify(call.display, disturbances(survey, plan))
        plan = _with_classes(plan, facts.num_classes)
        workload = Workload(machine, facts, listing)
        document = {
            **called_part(request, plan, call.argv),
            "system": asdict(survey.system),
            **installed_part(survey),
            **trained_part(workload),
        }
        with open_session(Path(request.out), document, datetime.now(UTC)) as session:
            return _make_runs(supervisor, plan, Recorder(session, workload, call.display), call)


def resume_session(folder: Path, timeout_s: float | None, call: Call) -> Outcome:
    """Make the runs of a session that are missing or failed, in their order, in the same folder.

    They get `timeout_s` as their time limit, unless it is None.

    Raises:
        BenchError: if there is no such session, or the machine has changed.
    """
    saved = load_session(folder)
    with reopen_session(folder, saved.id) as session:
        progress = read_progress(saved)
        _notify(call.display, (*session.repairs, *progress.warnings))
        if not progress.missing.runs:
            _notify(call.display, [f"nothing is missing in {folder}"])
            return Outcome(folder, list(progress.finished))
        listing = list_data(saved.request, call.stop)
        with open_supervisor(call.stop, preload_for(saved.request)) as supervisor:
            machine, build = ask_torch(supervisor)
            survey = take_survey(machine, build)
            # First of all: on another machine the preflight may refuse for other reasons.
            packages = {"system.packages": survey.system.packages}
            check_unchanged(saved, {**installed_part(survey), **packages})
            workload = Workload(machine, preflight(supervisor, saved.plan, listing), listing)
            check_unchanged(saved, trained_part(workload))
            _notify(call.display, listing.warnings if listing else ())
            _notify(call.display, disturbances(survey, saved.plan))
            session.keep_steps_of({record.run_id for record in progress.finished})
            recorder = Recorder(session, workload, call.display)
            recorder.records.extend(progress.finished)
            plan = _with_timeout(progress.missing, timeout_s)
            return _make_runs(supervisor, plan, recorder, call)


def plan_session(request: Request, stop: StopSignal) -> Plan:
    """The plan of a request, without touching a device. Torch only counts the GPUs, if needed.

    Raises:
        BenchError: if the request is impossible.
    """
    if request.wants_cpu:
        num_gpus = 0
    elif request.gpus is not None and not request.oversubscribe:
        num_gpus = max(request.gpus)
    else:
        with open_supervisor(stop, TORCH) as supervisor:
            num_gpus = supervisor.call(COUNT_GPUS)
    plan = make_plan(request, assumed_machine(num_gpus))
    listing = list_data(request, stop)
    if listing is None:
        return plan
    check_images(plan, listing)
    return replace(plan, notices=(*plan.notices, *listing.warnings))


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
    """The command that makes the rest of a session; empty if nothing is left."""
    done = {record.position for record in recorder.records if record.is_ok}
    if all(run.position in done for run in plan.runs):
        return ""
    return f"; make the rest with: mgpubench run --resume {shell_path(recorder.folder)}"


def _notify(display: Display, notices: Iterable[str]) -> None:
    for notice in notices:
        display.notice(notice)


def _num_classes(listing: ImageListing | None) -> int:
    return NUM_SYNTHETIC_CLASSES if listing is None else len(listing.classes)


def _with_classes(plan: Plan, num_classes: int) -> Plan:
    """The plan with the model's own number of classes, which a user's own model decides."""
    runs = tuple(replace(config, num_classes=num_classes) for config in plan.runs)
    return replace(plan, runs=runs)


def _with_timeout(plan: Plan, timeout_s: float | None) -> Plan:
    if timeout_s is None:
        return plan
    return replace(plan, runs=tuple(replace(run, timeout_s=timeout_s) for run in plan.runs))
