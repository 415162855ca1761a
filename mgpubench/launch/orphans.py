"""No process outlives the program, even if the program is killed with SIGKILL.

Every worker watches a file that the parent keeps locked. A stopped worker (SIGSTOP) cannot watch,
so on Linux the kernel also signals the parent's death to the fork server, which kills all workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

SCRATCH_VARIABLE = "MGPUBENCH_SCRATCH"
"""Tells the fork server which folder to remove."""

PARENT_VARIABLE = "MGPUBENCH_PARENT"
"""Tells the fork server which process is the parent."""

PR_SET_PDEATHSIG = 1
"""Option of prctl(2): the signal that a process gets when its parent dies."""


def end_group_with_parent(parent_lock: Path) -> None:
    """Watch the parent from a thread, and kill the process group of this worker when it dies."""

    def watch() -> None:
        if outlives(parent_lock):
            shutil.rmtree(parent_lock.parent, ignore_errors=True)
            os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
    _ask_for_signal(signal.SIGKILL)  # when the fork server dies


def outlives(parent_lock: Path) -> bool:
    """Wait as long as the parent lives. False if its file cannot show that."""
    try:
        with parent_lock.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
    except FileNotFoundError:
        return True  # the parent has ended and removed it
    except OSError:
        return False  # too many open files, or a file system without locks
    return True


def end_fork_server_with_parent() -> None:
    """Make the fork server end its workers and itself when the parent dies."""
    fork_server = os.getpid()
    parent = int(os.environ.get(PARENT_VARIABLE, os.getppid()))

    def leave(signum: int, frame: FrameType | None) -> None:
        # Workers inherit this handler, and any process may send the signal.
        if os.getpid() != fork_server or os.getppid() == parent:
            return
        _kill_children(fork_server)
        if scratch := os.environ.get(SCRATCH_VARIABLE):
            shutil.rmtree(scratch, ignore_errors=True)
        os._exit(0)

    signal.signal(signal.SIGUSR1, leave)
    _ask_for_signal(signal.SIGUSR1)
    leave(signal.SIGUSR1, None)  # the parent may have died already


def _ask_for_signal(signum: signal.Signals) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signum)


def _kill_children(parent: int) -> None:
    for child in _children(parent):
        for kill in (os.killpg, os.kill):  # it may not have its own group yet
            with contextlib.suppress(OSError):
                kill(child, signal.SIGKILL)


def _children(parent: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(after_name[1]) == parent:
                    yield int(entry.name)
