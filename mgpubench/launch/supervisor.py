"""The parent's side: starts workers, waits for them, ends them, and says why a job failed.

It knows functions and processes, and nothing about what they do. Torch's own elastic agent cannot
keep our contract on one machine: it waits without a time limit, hangs if a rank exits with code 0,
and names a peer's "connection closed" as the cause.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from mgpubench.errors import RunFailed
from mgpubench.launch.cause import Explain, find_cause
from mgpubench.launch.environment import Meeting
from mgpubench.launch.forkserver import ForkServer
from mgpubench.launch.processes import WorkerProcess, end_groups
from mgpubench.launch.scratch import check_limits, check_space, in_scratch, make_scratch
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.worker import Task, work

POLL_S = 0.5
"""How often a job is watched. Ends and signals are noticed at once."""
GRACE_S = 1.0
"""After the first failure, time for the other ranks to record what they saw."""
SHORT_JOB_TIMEOUT_S = 300.0
"""For loading torch from a cold disk, and for jobs without a watch of their own."""


def _nothing() -> None:
    """What most jobs have to do at their end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A function, called in one fresh process or in several at the same time."""

    target: str
    """`module:function`."""
    calls: Sequence[tuple[Any, ...]]
    """The arguments for each process. Its place in this list, after `first_rank`, is its rank."""
    folder: Path
    """Made by `Supervisor.make_folder`; removed when the job has ended."""
    label: str
    """The job in messages."""
    watch: Callable[[float], None]
    """Called with the elapsed seconds while the job runs. If it raises, the job is ended."""
    hide_gpus: bool = False
    finish: Callable[[], None] = _nothing
    """Called when all processes have ended, before the folder is removed."""
    explain: Explain = find_cause
    """The error for processes that have failed, and for the label."""
    first_rank: int = 0
    meeting: Meeting | None = None
    """Where its processes meet those of other machines."""
    order: object = None
    """The message by which other machines make their part of the job; None if they have no part."""


@contextlib.contextmanager
def open_supervisor(
    stop: StopSignal, preload: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Supervisor]:
    """A supervisor with a scratch folder of its own, which is removed at the end.

    `preload` names the modules that workers find loaded, and `variables` are added to their
    environment.
    """
    check_limits()
    scratch = make_scratch()
    server = ForkServer(scratch, preload, variables)
    lock = scratch / "parent.lock"
    try:
        with lock.open("wb") as held:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(held, fcntl.LOCK_EX)
            yield Supervisor(stop, scratch, lock, server)
    finally:
        try:
            server.end()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


class Launcher(Protocol):
    """What runs the jobs of a session, on one machine or on several."""

    @property
    def scratch(self) -> Path:
        """The folder for what workers are to read."""

    def make_folder(self) -> Path:
        """A new folder for the files of a job."""

    def run(self, job: Job) -> list[Any]:
        """Run a job to its end, and return what its calls return, in the order of the ranks."""


class Supervisor:
    """Runs functions in fresh processes, one job at a time."""

    def __init__(self, stop: StopSignal, scratch: Path, lock: Path, server: ForkServer) -> None:
        self.scratch = scratch
        self._stop = stop
        self._lock = lock
        self._server = server
        self._num_jobs = 0
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")

    def call(
        self, target: str, *args: object, label: str = "preparation", hide_gpus: bool = False
    ) -> Any:
        """Call a function (`module:function`) in a fresh process, and return what it returns.

        Raises:
            BenchError: what the function raised, or how its process ended.
        """

        def watch(elapsed_s: float) -> None:
            if elapsed_s > SHORT_JOB_TIMEOUT_S:
                raise RunFailed(
                    f"{label}: no answer within {SHORT_JOB_TIMEOUT_S:.0f} s",
                    "Is the machine busy, or is your own model slow to build?",
                )

        job = Job(
            target=target,
            calls=[args],
            folder=self.make_folder(),
            label=label,
            watch=watch,
            hide_gpus=hide_gpus,
        )
        return self.run(job)[0]

    def make_folder(self) -> Path:
        """A new folder for the files of a job."""
        self._num_jobs += 1
        folder = self.scratch / f"job-{self._num_jobs:04d}"
        check_space(self.scratch)
        with in_scratch(self.scratch):
            folder.mkdir()
        return folder

    def run(self, job: Job) -> list[Any]:
        """Run a job to its end, and return what its calls return.

        Raises:
            BenchError: the cause, if any process failed or the watch ended the job.
        """
        workers: list[WorkerProcess] = []
        try:
            for rank, args in enumerate(job.calls, start=job.first_rank):
                task = Task(
                    job.target, args, rank, job.folder, self._lock, job.hide_gpus, job.meeting
                )
                workers.append(WorkerProcess(task, self._start(task)))
            self._await_end(workers, job)
            with in_scratch(self.scratch):
                return [worker.result() for worker in workers]
        finally:
            end_groups([worker.process for worker in workers])
            job.finish()
            shutil.rmtree(job.folder, ignore_errors=True)

    def start_beside(self, target: str, *args: object) -> WorkerProcess:
        """Start a process that calls a function beside all jobs, without GPUs. See `end_groups`."""
        task = Task(target, args, 0, self.make_folder(), self._lock, hide_gpus=True)
        return WorkerProcess(task, self._start(task))

    def _start(self, task: Task) -> ForkServerProcess:
        with self._server.start_limit(SHORT_JOB_TIMEOUT_S) as is_over:
            try:
                with self._server.in_use():
                    process = self._context.Process(target=work, args=(task,))
                    # The first start waits until the fork server has loaded torch.
                    with self._stop.raising():
                        process.start()
            except (OSError, EOFError) as error:
                if is_over.is_set():
                    raise RunFailed(
                        f"torch was not loaded within {SHORT_JOB_TIMEOUT_S:.0f} s",
                        "Is it on a slow or hanging disk? "
                        "Try: python -c 'import torch, torchvision'",
                    ) from error
                check_space(self.scratch)
                raise RunFailed(
                    f"a worker process cannot be started: {str(error) or type(error).__name__}",
                    "Check the limits on processes and open files (ulimit -a), and that TMPDIR "
                    f"({tempfile.gettempdir()}) is a short path with space left.",
                ) from error
        return process

    def _await_end(self, workers: Sequence[WorkerProcess], job: Job) -> None:
        began_s = time.monotonic()
        while alive := [worker for worker in workers if worker.is_alive]:
            self._wait_for_news(alive, POLL_S)
            if any(worker.has_failed for worker in workers):
                self._wait_for_peers(workers)
                break
            # Not if the job has ended: this process may have been suspended meanwhile.
            if any(worker.is_alive for worker in workers):
                job.watch(time.monotonic() - began_s)
        if failed := [worker.observe() for worker in workers if worker.has_failed]:
            check_space(self.scratch)
            raise job.explain(failed, job.label)

    def _wait_for_peers(self, workers: Sequence[WorkerProcess]) -> None:
        """Let the other ranks fail by themselves, so that the earliest error is on record."""
        until_s = time.monotonic() + GRACE_S
        while alive := [worker for worker in workers if worker.is_alive]:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            self._wait_for_news(alive, left_s)

    def _wait_for_news(self, alive: Sequence[WorkerProcess], timeout_s: float) -> None:
        """Wait until a worker ends, a signal comes (which is raised), or time is up."""
        sentinels = [worker.process.sentinel for worker in alive]
        wait([*sentinels, self._stop.fileno()], timeout=timeout_s)
        self._stop.check()
