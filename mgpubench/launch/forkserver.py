"""The fork server: the process that has loaded torch once, and from which all workers are forked.

The standard library starts it at the first worker, and has no public way to end it.
"""

from __future__ import annotations

import contextlib
import multiprocessing.forkserver
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mgpubench.launch.orphans import PARENT_VARIABLE, SCRATCH_VARIABLE
from mgpubench.machine import host


@contextlib.contextmanager
def environment_of_workers(scratch: Path) -> Iterator[None]:
    """What the fork server inherits when it is started, which is at the first worker.

    Ranks and runs of a session share what torch.compile makes, and it goes with the session, unless
    the user has a place of his own for it.
    """
    compiled_code, safe_path = "TORCHINDUCTOR_CACHE_DIR", "PYTHONSAFEPATH"
    names = (SCRATCH_VARIABLE, PARENT_VARIABLE, compiled_code, safe_path, host.TF32_OVERRIDE)
    before = {name: os.environ.get(name) for name in names}
    # It would switch TF32 off behind the back of --precision, and the row would not say so.
    os.environ.pop(host.TF32_OVERRIDE, None)
    # Always: inherited from another mgpubench it would name that one's folder, to be removed.
    os.environ[SCRATCH_VARIABLE] = str(scratch)
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    # Python would look for its own modules in the current folder first.
    os.environ[safe_path] = "1"
    os.environ.setdefault(compiled_code, str(scratch / "compiled"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def start_fork_server() -> None:
    """Start it if it does not run; it does not wait for torch.

    In one piece, with nothing that a signal could break off: a server that nobody knows of would
    not be ended.
    """
    multiprocessing.forkserver.ensure_running()


def end_fork_server() -> None:
    """End it at once; by itself it would first finish loading torch.

    The next start makes another one.
    """
    if _kill_fork_server():
        server: Any = multiprocessing.forkserver._forkserver
        # Its socket may be gone with the scratch folder, and it itself if SIGCHLD is ignored.
        with contextlib.suppress(FileNotFoundError, ChildProcessError):
            server._stop()


def _kill_fork_server() -> bool:
    """False where none has been started."""
    server: Any = multiprocessing.forkserver._forkserver
    if server._forkserver_pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(server._forkserver_pid, signal.SIGKILL)
    return True


@contextlib.contextmanager
def start_limit(seconds: float) -> Iterator[threading.Event]:
    """Kill the fork server if a start takes longer, upon which the start fails; and set the event.

    The start itself must happen in the main thread: a fork server ends with the thread that made it
    (see `orphans`), and nothing else would end a start that hangs.
    """
    is_over = threading.Event()

    def give_up() -> None:
        is_over.set()
        _kill_fork_server()

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield is_over
    finally:
        timer.cancel()
