"""The parent's side: starts workers, waits for them, ends them, and says why a run failed.

Torch's own elastic agent cannot keep our contract on one machine: it waits without a time limit,
hangs when a rank exits with code 0, and names a peer's "connection closed" as the cause.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, Literal

from mgpubench.config.run_config import RunConfig
from mgpubench.errors import RunFailed
from mgpubench.launch.cause import Exit, find_cause
from mgpubench.launch.forkserver import (
    end_fork_server,
    environment_of_workers,
    start_fork_server,
    start_limit,
)
from mgpubench.launch.pace import check_pace
from mgpubench.launch.scratch import check_limits, check_space, in_scratch, make_scratch
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.step_count import STEP_COUNT_FILE, read_step_count
from mgpubench.launch.worker import Failure, Task, work
from mgpubench.results.schema import RankRecord

POLL_S = 0.5
"""How often progress is drawn; ends and signals are noticed at once."""
GRACE_S = 1.0
"""After the first failure: time for the others to say what they saw."""
TERMINATE_S = 3.0
"""Between SIGTERM and SIGKILL."""
JOIN_S = 5.0
"""After SIGKILL, for all processes together."""
SHORT_TASK_TIMEOUT_S = 300.0
"""For loading torch, from a cold disk; and for describing the machine or inspecting a model."""
LOG_TAIL_CHARACTERS = 4000
RUN_RANK = "mgpubench.training.rank:run_rank"

Needs = Literal["torch", "training", "torchvision"]
"""What the workers will import, each including the one before; it is loaded once for all."""

_TORCH = "mgpubench.launch.preload"
_TRAINING = "mgpubench.launch.preload_training"
_TORCHVISION = "mgpubench.launch.preload_torchvision"
PRELOAD: dict[Needs, tuple[str, ...]] = {
    "torch": (_TORCH,),
    "training": (_TORCH, _TRAINING),
    "torchvision": (_TORCH, _TRAINING, _TORCHVISION),
}

OnSteps = Callable[[int], None]


@contextlib.contextmanager
def open_supervisor(stop: StopSignal, needs: Needs) -> Iterator[Supervisor]:
    """A supervisor with a scratch folder of its own, removed at the end."""
    check_limits()
    scratch = make_scratch()
    own: Any = multiprocessing.process.current_process()
    # The fork server's socket too: a folder of its own would stay if this process were killed.
    own._config["tempdir"] = str(scratch)
    lock = scratch / "parent.lock"
    try:
        with environment_of_workers(scratch), lock.open("wb") as held:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(held, fcntl.LOCK_EX)
            yield Supervisor(stop, scratch, lock, needs)
    finally:
        try:
            end_fork_server()
        finally:
            del own._config["tempdir"]
            shutil.rmtree(scratch, ignore_errors=True)


class Supervisor:
    """Runs functions in fresh processes, one run at a time."""

    def __init__(self, stop: StopSignal, scratch: Path, lock: Path, needs: Needs) -> None:
        self.scratch = scratch
        self._stop = stop
        self._lock = lock
        self._num_launches = 0
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOAD[needs]))

    def call(
        self, target: str, *args: object, label: str = "preparation", hide_gpus: bool = False
    ) -> Any:
        """What a function (`module:function`) returns, called in a process that then ends.

        `label` names what it is for, should its process die.

        Raises:
            BenchError: what the function raised, or how its process ended.
        """
        folder = self._new_folder()
        task = Task(target, args, 0, folder, self._lock, hide_gpus)

        def watch(elapsed_s: float) -> None:
            if elapsed_s > SHORT_TASK_TIMEOUT_S:
                raise RunFailed(
                    f"{label}: no answer within {SHORT_TASK_TIMEOUT_S:.0f} s",
                    "Is the machine busy, or a model of your own slow to build?",
                )

        return self._run([task], label, watch)[0]

    def launch(
        self, config: RunConfig, listing: Path, on_steps: OnSteps, target: str = RUN_RANK
    ) -> list[RankRecord]:
        """Run all ranks of one run to the end.

        Raises:
            BenchError: the cause, if any rank failed or the run took too long.
        """
        folder = self._new_folder()
        tasks = [
            Task(
                target,
                (config, rank, folder, listing),
                rank,
                folder,
                self._lock,
                hide_gpus=config.device_type == "cpu",
            )
            for rank in range(config.world_size)
        ]

        def watch(elapsed_s: float) -> None:
            count = read_step_count(folder / STEP_COUNT_FILE)
            on_steps(count.steps)
            check_pace(config, count, elapsed_s)

        return self._run(tasks, config.label, watch)

    def _new_folder(self) -> Path:
        self._num_launches += 1
        folder = self.scratch / f"launch-{self._num_launches:04d}"
        check_space(self.scratch)
        with in_scratch(self.scratch):
            folder.mkdir()
        return folder

    def _run(self, tasks: Sequence[Task], label: str, watch: Callable[[float], None]) -> list[Any]:
        workers: list[_Worker] = []
        try:
            for task in tasks:
                workers.append(_Worker(task, self._start(task)))
            self._await_end(workers, label, watch)
            with in_scratch(self.scratch):
                return [pickle.loads(worker.task.result_file.read_bytes()) for worker in workers]
        finally:
            end_groups([worker.process for worker in workers])
            shutil.rmtree(tasks[0].folder, ignore_errors=True)

    def _start(self, task: Task) -> ForkServerProcess:
        process = self._context.Process(target=work, args=(task,), name=f"rank-{task.rank}")
        with start_limit(SHORT_TASK_TIMEOUT_S) as is_over:
            try:
                # The first start waits until the fork server has loaded torch.
                start_fork_server()
                with self._stop.raising():
                    process.start()
            except (OSError, EOFError) as error:
                if is_over.is_set():
                    raise RunFailed(
                        f"torch was not loaded within {SHORT_TASK_TIMEOUT_S:.0f} s",
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

    def _await_end(
        self, workers: Sequence[_Worker], label: str, watch: Callable[[float], None]
    ) -> None:
        began_s = time.monotonic()
        while alive := [worker for worker in workers if worker.is_alive]:
            self._wait_for_news(alive, POLL_S)
            if any(worker.has_failed for worker in workers):
                self._grace(workers)
                check_space(self.scratch)
                raise find_cause([w.observe() for w in workers if w.has_failed], label)
            # Not of a run that has ended, whenever that is seen: this process may have slept.
            if any(worker.is_alive for worker in workers):
                watch(time.monotonic() - began_s)
        if failed := [worker.observe() for worker in workers if worker.has_failed]:
            check_space(self.scratch)
            raise find_cause(failed, label)

    def _grace(self, workers: Sequence[_Worker]) -> None:
        """Let the other ranks fail by themselves, so that the earliest error is on record."""
        until_s = time.monotonic() + GRACE_S
        while alive := [worker for worker in workers if worker.is_alive]:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            self._wait_for_news(alive, left_s)

    def _wait_for_news(self, alive: Sequence[_Worker], timeout_s: float) -> None:
        """Wait until a worker ends, a signal comes (which is raised), or time is up."""
        sentinels = [worker.process.sentinel for worker in alive]
        wait([*sentinels, self._stop.fileno()], timeout=timeout_s)
        self._stop.check()


class _Worker:
    """A process and its task."""

    def __init__(self, task: Task, process: ForkServerProcess) -> None:
        self.task = task
        self.process = process

    @property
    def is_alive(self) -> bool:
        return self.process.exitcode is None

    @property
    def has_failed(self) -> bool:
        """True once it has ended without a result, whatever its exit code."""
        code = self.process.exitcode
        return code is not None and (code != 0 or not self.task.result_file.exists())

    def observe(self) -> Exit:
        return Exit(
            rank=self.task.rank,
            pid=self.process.pid or 0,
            exit_code=self.process.exitcode or 0,
            failure=self._failure(),
            log=self.task.log_file.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]
            if self.task.log_file.exists()
            else "",
        )

    def _failure(self) -> Failure | None:
        try:
            failure: Failure = pickle.loads(self.task.failure_file.read_bytes())
        # None, or an error of somebody's that cannot be made again.
        except Exception:
            return None
        return failure


def end_groups(processes: Sequence[ForkServerProcess]) -> None:
    """End processes and all their descendants: SIGTERM, and after a while SIGKILL."""
    _signal_groups(processes, signal.SIGTERM)
    until_s = time.monotonic() + TERMINATE_S
    while alive := [p.sentinel for p in processes if p.exitcode is None]:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            break
        wait(alive, timeout=left_s)
    # Also where the leaders have ended: their loader workers may not have.
    _signal_groups(processes, signal.SIGKILL)
    # Not for ever: a rank that hangs in a driver cannot be ended by anybody.
    until_s = time.monotonic() + JOIN_S
    for process in processes:
        process.join(max(0.0, until_s - time.monotonic()))


def _signal_groups(processes: Sequence[ForkServerProcess], signum: signal.Signals) -> None:
    for process in processes:
        if process.pid is None:
            continue
        try:
            os.killpg(process.pid, signum)
        except ProcessLookupError:
            # No such group: all gone, or so young that it is not yet a group of its own.
            if process.exitcode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signum)
