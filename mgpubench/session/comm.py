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
from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import Plan
from mgpubench.errors import BenchError, RequestRefused, RunFailed
from mgpubench.format import format_count
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import SHORT_JOB_TIMEOUT_S, Job, Supervisor, open_supervisor
from mgpubench.machine.environment import environment_digest, recorded_environment
from mgpubench.machine.host import assumed_machine
from mgpubench.machine.system import Survey
from mgpubench.results.comm import COMM_FILES, CommRecord
from mgpubench.results.session_folder import check_writable, open_session
from mgpubench.session.comm_recorder import CommDisplay, CommRecorder, Place
from mgpubench.session.document import installed_part, own_commit
from mgpubench.session.prepare import ask_torch, disturbances, take_survey
from mgpubench.session.workers import BUCKET_SIZES, COLLECTIVES, COUNT_GPUS, FIND_LACKING


@dataclass(frozen=True, slots=True)
class CommCall:
    """What a session gets from the command line besides the request."""

    argv: Sequence[str]
    display: CommDisplay
    stop: StopSignal


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
    with open_supervisor(call.stop, COLLECTIVES) as supervisor:
        machine, build = ask_torch(supervisor)
        survey = take_survey(machine, build)
        plan = _plan_on(supervisor, request, machine)
        for notice in (*plan.notices, *disturbances(survey, _as_runs(plan))):
            call.display.notice(notice)
        document = _document(request, plan, survey, call.argv)
        with open_session(out, document, datetime.now(UTC), COMM_FILES) as session:
            environment = environment_digest(recorded_environment(survey.environment), set())
            place = Place(machine=machine, environment=environment, order_seed=plan.order_seed)
            recorder = CommRecorder(supervisor, session, place, call.display)
            failed = _make_all(recorder, plan)
            call.stop.check()
            return CommOutcome(session.folder, recorder.records, failed, len(plan.runs))


def plan_comm_session(request: CommRequest, stop: StopSignal) -> CommPlan:
    """The plan of a request, without touching a device. Torch only looks at the model and the GPUs.

    Raises:
        RequestRefused: if the request is impossible.
    """
    work = request.work
    needs_torch = work.model is not None or not (work.wants_cpu or work.gpus)
    if not needs_torch:
        return make_comm_plan(request, assumed_machine(max(work.gpus or (0,))))
    with open_supervisor(stop, COLLECTIVES) as supervisor:
        if work.wants_cpu:
            num_gpus = 0
        elif work.gpus is not None:
            num_gpus = max(work.gpus)
        else:
            num_gpus = supervisor.call(COUNT_GPUS)
        machine = assumed_machine(num_gpus)
        return make_comm_plan(request, machine, _buckets(supervisor, request, machine))


def _plan_on(supervisor: Supervisor, request: CommRequest, machine: Machine) -> CommPlan:
    """The plan of a request, without the operations that the backend does not have."""
    buckets = _buckets(supervisor, request, machine)
    lacking = _lacking(supervisor, request, machine)
    plan = make_comm_plan(request, machine, buckets, lacking)
    backend = plan.runs[0].run.backend
    left_out = (
        f"{operation} is left out: this torch's {backend} does not have it ({reason})"
        for operation, reason in lacking.items()
    )
    return replace(plan, notices=(*plan.notices, *left_out))


def _buckets(supervisor: Supervisor, request: CommRequest, machine: Machine) -> list[int]:
    """Bytes of each gradient bucket of the model; none without a model."""
    if request.work.model is None:
        return []
    run = plan_devices(request, machine)[0]
    sizes: list[int] = supervisor.call(
        BUCKET_SIZES, run, label=f"--model {run.model}", hide_gpus=True
    )
    return sizes


def _lacking(
    supervisor: Supervisor, request: CommRequest, machine: Machine
) -> dict[Operation, str]:
    """The operations that the backend does not have, and what it says of them.

    Raises:
        RequestRefused: if one of them was named, or it has none of them.
    """
    run = plan_devices(request, machine)[0]
    wanted = wanted_operations(request.options)
    folder = supervisor.make_folder()
    job = Job(
        target=FIND_LACKING,
        calls=[(run, wanted, rank, folder) for rank in range(run.world_size)],
        folder=folder,
        label="trying each operation",
        watch=_end_after_a_while,
        hide_gpus=run.device_type == "cpu",
    )
    lacking: dict[Operation, str] = supervisor.run(job)[0]
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


def _document(
    request: CommRequest, plan: CommPlan, survey: Survey, argv: Iterable[str]
) -> dict[str, object]:
    """What session.json says."""
    return {
        "mgpubench_version": __version__,
        "mgpubench_commit": own_commit(),
        "argv": list(argv),
        "command": "comm",
        "request": asdict(request),
        "plan": [asdict(config) for config in plan.runs],
        "notices": list(plan.notices),
        "order_seed": plan.order_seed,
        "system": asdict(survey.system),
        **installed_part(survey),
    }
