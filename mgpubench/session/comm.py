"""One call of `mgpubench comm`: from a request to rows on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from mgpubench import __version__
from mgpubench.config.comm_plan import (
    CommPlan,
    make_comm_plan,
    plan_devices,
    wanted_operations,
)
from mgpubench.config.comm_request import CommRequest, Operation
from mgpubench.config.machine_facts import Machine, NodeDevices
from mgpubench.config.nodes import Nodes
from mgpubench.config.plan import Plan
from mgpubench.config.run_config import RunConfig
from mgpubench.errors import BenchError, RequestRefused, RunFailed
from mgpubench.format import format_count
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import SHORT_JOB_TIMEOUT_S, Launcher, Supervisor, open_supervisor
from mgpubench.machine.environment import environment_digest, recorded_environment
from mgpubench.machine.host import assumed_machine
from mgpubench.machine.system import Survey
from mgpubench.results.comm import COMM_FILES, CommRecord
from mgpubench.results.session_folder import check_writable, open_session
from mgpubench.session.comm_node import asked_of_comm, comm_devices
from mgpubench.session.comm_recorder import CommDisplay, CommRecorder, Place
from mgpubench.session.document import own_commit
from mgpubench.session.hello import check_devices
from mgpubench.session.nodes import Alone, made_on, open_nodes
from mgpubench.session.prepare import ask_torch, disturbances, take_survey
from mgpubench.session.workers import BUCKET_SIZES, COLLECTIVES, COUNT_GPUS, TryOrder


@dataclass(frozen=True, slots=True)
class CommCall:
    """What a session gets from the command line besides the request."""

    argv: Sequence[str]
    display: CommDisplay
    stop: StopSignal
    nodes: Nodes | None = None
    """The machines of the session, if there are several."""


@dataclass(frozen=True, slots=True)
class CommOutcome:
    """A finished session."""

    folder: Path
    records: list[CommRecord]
    failed: int
    """Runs that failed."""
    planned: int


def comm_session(request: CommRequest, call: CommCall) -> CommOutcome:
    """Make every run of a request, in the order of the plan, and record each size at once.

    A failed run is recorded, and the others follow.

    Raises:
        BenchError: if nothing could be started; Interrupted after a signal.
    """
    out = Path(request.work.out)
    check_writable(out)
    with (
        open_supervisor(call.stop, COLLECTIVES) as supervisor,
        open_nodes(call.nodes, supervisor, call.stop, call.display) as nodes,
    ):
        machine, build = ask_torch(supervisor)
        survey = take_survey(machine, build)
        _join(nodes, request, survey, machine)
        launcher = nodes.launcher(supervisor)
        plan = _plan_on(supervisor, launcher, request, machine, nodes.devices)
        for notice in (*plan.notices, *disturbances(survey, _as_runs(plan))):
            call.display.notice(notice)
        document = _document(request, plan, call.argv) | made_on(survey, nodes)
        with open_session(out, document, datetime.now(UTC), COMM_FILES) as session:
            place = _place(machine, nodes, survey, plan)
            recorder = CommRecorder(launcher, session, place, call.display)
            failed = _make_all(recorder, plan)
            nodes.conclude(failed, len(plan.runs))
            call.stop.check()
            return CommOutcome(session.folder, recorder.records, failed, len(plan.runs))


def plan_comm_session(request: CommRequest, stop: StopSignal) -> CommPlan:
    """The plan of a request, without touching a device. Torch only looks at the model and the GPUs.

    The other machines are assumed to be like this one.

    Raises:
        RequestRefused: if the request is impossible.
    """
    work = request.work
    needs_torch = work.model is not None or not (work.wants_cpu or work.gpus)
    if not needs_torch:
        return _assumed_plan(request, max(work.gpus or (0,)))
    with open_supervisor(stop, COLLECTIVES) as supervisor:
        if work.wants_cpu:
            num_gpus = 0
        elif work.gpus is not None:
            num_gpus = max(work.gpus)
        else:
            num_gpus = supervisor.call(COUNT_GPUS)
        return _assumed_plan(request, num_gpus, supervisor)


def _assumed_plan(
    request: CommRequest, num_gpus: int, supervisor: Supervisor | None = None
) -> CommPlan:
    """The plan on machines with some GPUs; `supervisor` looks at the model, if there is one."""
    machine = assumed_machine(num_gpus)
    others = (comm_devices(request, machine),) * (request.num_nodes - 1)
    first = plan_devices(request, machine, others)[0]
    buckets = _buckets(supervisor, request, first) if supervisor else []
    return make_comm_plan(request, machine, buckets, others=others)


def _join(nodes: Alone, request: CommRequest, survey: Survey, machine: Machine) -> None:
    """Wait for the other machines, refuse what must be equal and is not, and let them begin."""
    own = comm_devices(request, machine)
    nodes.join(asked_of_comm(request), own, survey)
    check_devices(own, nodes.devices)
    nodes.announce(request)


def _place(machine: Machine, nodes: Alone, survey: Survey, plan: CommPlan) -> Place:
    return Place(
        machines=(machine, *(other.machine for other in nodes.devices)),
        environment=environment_digest(recorded_environment(survey.environment), set()),
        order_seed=plan.order_seed,
    )


def _plan_on(
    supervisor: Supervisor,
    launcher: Launcher,
    request: CommRequest,
    machine: Machine,
    others: tuple[NodeDevices, ...],
) -> CommPlan:
    """The plan of a request, without the operations that the backend does not have.

    This machine's `supervisor` looks at the model, and the `launcher` tries the operations on all.
    """
    first = plan_devices(request, machine, others)[0]
    buckets = _buckets(supervisor, request, first)
    lacking = _lacking(launcher, request, first)
    plan = make_comm_plan(request, machine, buckets, lacking, others)
    left_out = (
        f"{operation} is left out: this torch's {first.backend} does not have it ({reason})"
        for operation, reason in lacking.items()
    )
    return replace(plan, notices=(*plan.notices, *left_out))


def _buckets(supervisor: Supervisor, request: CommRequest, run: RunConfig) -> list[int]:
    """Bytes of each gradient bucket of the model; none without a model."""
    if request.work.model is None:
        return []
    sizes: list[int] = supervisor.call(
        BUCKET_SIZES, run, label=f"--model {run.model}", hide_gpus=True
    )
    return sizes


def _lacking(launcher: Launcher, request: CommRequest, run: RunConfig) -> dict[Operation, str]:
    """The operations that the backend does not have, and what it says of them.

    Raises:
        RequestRefused: if one of them was named, or it has none of them.
    """
    wanted = wanted_operations(request.options)
    job = TryOrder(run=run, operations=wanted).job(launcher)
    lacking: dict[Operation, str] = launcher.run(replace(job, watch=_end_after_a_while))[0]
    if lacking and (request.options.operations is not None or len(lacking) == len(wanted)):
        operation, reason = next(iter(lacking.items()))
        raise RequestRefused(
            f"--operations {operation}: this torch's {run.backend} does not have it ({reason})",
            "Leave it out.",
        )
    return lacking


def _end_after_a_while(elapsed_s: float) -> None:
    if elapsed_s > SHORT_JOB_TIMEOUT_S:
        raise RunFailed(
            f"trying each operation: no answer within {SHORT_JOB_TIMEOUT_S:.0f} s",
            "A rank hangs. Name the operations one by one, to find out which: --operations",
        )


def _make_all(recorder: CommRecorder, plan: CommPlan) -> int:
    """Make all runs, and return how many failed."""
    display = recorder.display
    display.add_runs(plan.runs)
    try:
        return sum(not recorder.run(config) for config in plan.runs)
    except BenchError:
        finished = sum(record.is_ok for record in recorder.records)
        display.notice(
            f"{format_count(finished, 'finished row')} kept in {recorder.session.folder}"
        )
        raise


def _as_runs(plan: CommPlan) -> Plan:
    """The devices of a plan as those of a plan of `run`."""
    return Plan(runs=tuple(each.run for each in plan.runs), notices=(), order_seed=0)


def _document(request: CommRequest, plan: CommPlan, argv: Iterable[str]) -> dict[str, object]:
    """What session.json says of the command and its plan."""
    return {
        "mgpubench_version": __version__,
        "mgpubench_commit": own_commit(),
        "argv": list(argv),
        "command": "comm",
        "request": asdict(request),
        "plan": [asdict(config) for config in plan.runs],
        "notices": list(plan.notices),
        "order_seed": plan.order_seed,
    }
