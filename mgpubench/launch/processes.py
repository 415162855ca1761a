"""Worker processes as the parent sees them, and how they are ended."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess

from mgpubench.launch.cause import Exit
from mgpubench.launch.worker import Failure, Task

TERMINATE_S = 3.0
"""Between SIGTERM and SIGKILL."""
JOIN_S = 5.0
"""After SIGKILL, for all processes together."""
LOG_TAIL_CHARACTERS = 4000


class WorkerProcess:
    """A process and its task."""

    def __init__(self, task: Task, process: ForkServerProcess) -> None:
        self.task = task
        self.process = process

    @property
    def is_alive(self) -> bool:
        """True until the process has ended."""
        return self.process.exitcode is None

    @property
    def has_failed(self) -> bool:
        """True if it has ended without a result, with any exit code."""
        code = self.process.exitcode
        return code is not None and (code != 0 or not self.task.result_file.exists())

    def result(self) -> object:
        """What its function returned."""
        return pickle.loads(self.task.result_file.read_bytes())

    def observe(self) -> Exit:
        """How it ended, as far as is known."""
        return Exit(
            rank=self.task.rank,
            pid=self.process.pid or 0,
            exit_code=self.process.exitcode or 0,
            failure=self._failure(),
            log=self._log(),
        )

    def _failure(self) -> Failure | None:
        try:
            failure: Failure = pickle.loads(self.task.failure_file.read_bytes())
        # There is none, or it holds an error of a user's class that cannot be rebuilt.
        except Exception:
            return None
        return failure

    def _log(self) -> str:
        if not self.task.log_file.exists():
            return ""
        return self.task.log_file.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]


def end_groups(processes: Sequence[ForkServerProcess]) -> None:
    """End processes and all their descendants: SIGTERM first, and SIGKILL after a while."""
    _signal_groups(processes, signal.SIGTERM)
    until_s = time.monotonic() + TERMINATE_S
    while alive := [p.sentinel for p in processes if p.exitcode is None]:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            break
        wait(alive, timeout=left_s)
    # Also after the leaders have ended: their loader workers may still live.
    _signal_groups(processes, signal.SIGKILL)
    # With a limit: a rank that hangs in a driver cannot be killed.
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
            # There is no such group: all have ended, or the process has not made its group yet.
            if process.exitcode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signum)
