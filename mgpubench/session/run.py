"""One call of `mgpubench run`: from a request to rows on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from mgpubench.config.machine_facts import Machine
from mgpubench.config.nodes import Nodes
from mgpubench.config.plan import MAX_RUNS, Plan, make_plan
from mgpubench.config.request import Request
from mgpubench.config.request_checks import width_of
from mgpubench.config.types import DEFAULT_MAX_ROUNDS
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Launcher, Supervisor, open_supervisor
from mgpubench.machine.environment import environment_digest, recorded_environment
from mgpubench.machine.host import assumed_machine
from mgpubench.machine.system import Survey
from mgpubench.results.schema import ModelFacts, RunRecord
from mgpubench.results.session_folder import Session, open_session, reopen_session
from mgpubench.session.document import SavedSession, called_part, installed_part, trained_part
from mgpubench.session.hello import Asked, asked_of, check_devices, devices_of, unplanned_devices
from mgpubench.session.nodes import Alone, Announcement, dismiss, made_on, open_nodes
from mgpubench.session.prepare import (
    Workload,
    ask_torch,
    check_images,
    check_out,
    disturbances,
    list_data,
    preflight,
    take_survey,
)
from mgpubench.session.recorder import Display, Recorder, Sitting
from mgpubench.session.resume import (
    Progress,
    Resume,
    check_nodes,
    check_unchanged,
    load_runs,
    read_progress,
    runs_to_make,
)
from mgpubench.session.rounds import Lasting, Maker, Target, session_records
from mgpubench.session.supervisors import Environment, open_supervisors
from mgpubench.session.telemetry import Sampling, open_telemetry
from mgpubench.session.workers import COUNT_GPUS, TORCH, preload_for
from mgpubench.training.data.listing import ImageListing


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished session."""

    folder: Path
    records: list[RunRecord]
    """The rows that count."""
    failed: int
    """Runs without figures, and those that failed in this sitting."""
    planned: int
    is_endurance: bool = False
    """True if rounds were repeated until a time was up."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a session gets from the command line besides the request."""

    argv: Sequence[str]
    display: Display
    stop: StopSignal
    fail_fast: bool = False
    """End the session at the first run that fails."""
    nodes: Nodes | None = None
    """The machines of the session, if there are several."""
    sampling: Sampling = field(default_factory=Sampling)


def run_session(request: Request, call: Call) -> Outcome:
    """Make every run of a request, in the order of the plan, and record each one at once.

    A failed run is recorded without figures, and the others follow.

    Raises:
        BenchError: if nothing could be started; Interrupted after a signal.
    """
    check_out(request)
    listings = list_data(request, call.stop)
    with (
        open_supervisor(call.stop, preload_for(request)) as supervisor,
        open_nodes(call.nodes, supervisor, call.stop, call.display) as nodes,
    ):
        machine, build = ask_torch(supervisor)
        survey = take_survey(machine, build)
        _join(nodes, request, survey, machine)
        plan = make_plan(request, machine, _num_classes(listings), nodes.devices)
        _notify(call.display, (*plan.notices, *_warnings(listings)))
        nodes.announce(Announcement.of(request, plan))
        facts = preflight(supervisor, plan, listings)
        # Only now: next to a refusal they would not matter.
        _notify(call.display, disturbances(survey, plan))
        plan = _with_classes(plan, facts)
        workload = Workload(machine, _environment(survey, plan), facts, listings, nodes.devices)
        nodes.agree(trained_part(workload))
        called = called_part(request, plan, call.argv)
        document = {**called, **made_on(survey, nodes), **trained_part(workload)}
        target, sitting = _target(request, request), _first_sitting(request, plan)
        with (
            open_supervisors(supervisor, request, listings, call.stop) as supervisors,
            open_session(Path(request.out), document, datetime.now(UTC)) as session,
            _recording(session, workload, call, sitting) as recorder,
        ):
            maker = _maker(_launchers(nodes, supervisors), recorder, request, call)
            maker.make_all(plan, plan.runs, target)
            return _concluded(session.folder, sitting, nodes, target)


def resume_session(resume: Resume, call: Call) -> Outcome:
    """Make what a session lacks, and add rounds to it if wanted, in the same folder.

    Raises:
        BenchError: if there is no such session, or the machine has changed.
    """
    saved = load_runs(resume.folder)
    request = saved.request
    with reopen_session(resume.folder, saved.id) as session:
        progress = read_progress(saved)
        plan, runs = runs_to_make(progress, resume)
        _notify(call.display, (*session.repairs, *progress.warnings, *progress.repeated(runs)))
        target, sitting = _target(resume, request), _next_sitting(saved, progress, resume)
        check_nodes(saved, call.nodes)
        if not runs and target is None:
            _notify(call.display, [f"nothing is missing in {resume.folder}"])
            dismiss(call.nodes, call.stop, call.display)
            return _outcome(resume.folder, sitting)
        listings = list_data(request, call.stop)
        with (
            open_supervisor(call.stop, preload_for(request)) as supervisor,
            open_nodes(call.nodes, supervisor, call.stop, call.display) as nodes,
        ):
            machine, build = ask_torch(supervisor)
            survey = take_survey(machine, build)
            nodes.join(Asked(), unplanned_devices(machine), survey)
            _check_installed(saved, survey, nodes)
            nodes.announce(Announcement.of(request, saved.plan))
            facts = preflight(supervisor, saved.plan, listings)
            workload = Workload(machine, _environment(survey, plan), facts, listings, nodes.devices)
            _check_trained(saved, workload, nodes)
            _notify(call.display, (*_warnings(listings), *disturbances(survey, saved.plan)))
            session.keep_steps_of(progress.finished_ids)
            with (
                open_supervisors(supervisor, request, listings, call.stop) as supervisors,
                _recording(session, workload, call, sitting) as recorder,
            ):
                maker = _maker(_launchers(nodes, supervisors), recorder, request, call)
                maker.make_all(plan, runs, target)
            return _concluded(session.folder, sitting, nodes, target)


@contextmanager
def _recording(
    session: Session, workload: Workload, call: Call, sitting: Sitting
) -> Iterator[Recorder]:
    """What records the runs, with the telemetry of the devices beside it."""
    with open_telemetry(session, call.display, sitting.number, call.sampling) as telemetry:
        yield Recorder(session, workload, call.display, sitting, telemetry)


def _join(nodes: Alone, request: Request, survey: Survey, machine: Machine) -> None:
    """Wait for the other machines, and refuse what must be equal and is not."""
    own = devices_of(request, machine)
    nodes.join(asked_of(request), own, survey)
    check_devices(own, nodes.devices)


def _check_installed(saved: SavedSession, survey: Survey, nodes: Alone) -> None:
    """Refuse another machine, before its preflight refuses it for other reasons."""
    packages = {"system.packages": survey.system.packages}
    check_unchanged(saved, {**installed_part(survey), **packages, **nodes.installed})


def _check_trained(saved: SavedSession, workload: Workload, nodes: Alone) -> None:
    check_unchanged(saved, trained_part(workload))
    nodes.agree(trained_part(workload))


def plan_session(request: Request, stop: StopSignal, num_nodes: int = 1) -> Plan:
    """The plan of a request, without touching a device. Torch only counts the GPUs, if needed.

    The other machines are assumed to be like this one.

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
    machine = assumed_machine(num_gpus)
    others = (devices_of(request, machine),) * (num_nodes - 1)
    plan = make_plan(request, machine, others=others)
    listings = list_data(request, stop)
    check_images(plan, listings)
    return replace(plan, notices=(*plan.notices, *_warnings(listings)))


def _launchers(
    nodes: Alone, supervisors: Mapping[Environment, Supervisor]
) -> dict[Environment, Launcher]:
    return {env: nodes.launcher(supervisor) for env, supervisor in supervisors.items()}


def _maker(
    launchers: Mapping[Environment, Launcher], recorder: Recorder, request: Request, call: Call
) -> Maker:
    return Maker(
        launchers=launchers,
        recorder=recorder,
        display=call.display,
        stop=call.stop,
        cool_down_s=request.cool_down_s,
        fail_fast=call.fail_fast,
    )


def _target(asked: Request | Resume, request: Request) -> Target | Lasting | None:
    """When no more rounds are added; None if none is."""
    if asked.duration_s is not None:
        return Lasting(duration_s=asked.duration_s)
    until = asked.until or request.until
    if not until:
        return None
    limit = asked.max_rounds or request.max_rounds or DEFAULT_MAX_ROUNDS
    return Target(width=width_of(until), max_rounds=limit)


def _environment(survey: Survey, plan: Plan) -> str:
    varied = {name for run in plan.runs for name, _ in run.env}
    return environment_digest(recorded_environment(survey.environment), varied)


def _first_sitting(request: Request, plan: Plan) -> Sitting:
    """The call that begins a session."""
    # The number of rounds that fit into a time is not chosen by a look at the results.
    planned = plan.rounds if request.duration_s is None else MAX_RUNS
    return Sitting(planned_rounds=planned, is_sequential=bool(request.until))


def _next_sitting(saved: SavedSession, progress: Progress, resume: Resume) -> Sitting:
    """A call that resumes a session."""
    request = saved.request
    planned = saved.plan if request.duration_s is None else progress.plan
    return Sitting(progress.sitting, planned.rounds, bool(request.until or resume.until))


def _concluded(
    folder: Path, sitting: Sitting, nodes: Alone, target: Target | Lasting | None
) -> Outcome:
    """The outcome of a session, which all machines hear."""
    outcome = replace(_outcome(folder, sitting), is_endurance=isinstance(target, Lasting))
    nodes.conclude(outcome.failed, outcome.planned)
    return outcome


def _outcome(folder: Path, sitting: Sitting) -> Outcome:
    records = session_records(folder)
    done = {record.position for record in records if record.is_ok}
    failed = {
        record.position
        for record in records
        if record.position not in done
        # It has figures of an earlier sitting, but the round is not complete.
        or (record.status == "failed" and record.sitting == sitting.number)
    }
    return Outcome(folder, records, failed=len(failed), planned=len(done | failed))


def _notify(display: Display, notices: Iterable[str]) -> None:
    for notice in notices:
        display.notice(notice)


def _warnings(listings: Mapping[str, ImageListing]) -> Iterator[str]:
    for listing in listings.values():
        yield from listing.warnings


def _num_classes(listings: Mapping[str, ImageListing]) -> dict[str, int]:
    return {folder: len(listing.classes) for folder, listing in listings.items()}


def _with_classes(plan: Plan, facts: Mapping[str, ModelFacts]) -> Plan:
    """The plan with each model's own number of classes, which a user's own model decides."""
    runs = tuple(replace(run, num_classes=facts[run.model].num_classes) for run in plan.runs)
    return replace(plan, runs=runs)
