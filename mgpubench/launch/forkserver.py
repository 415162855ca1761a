"""The fork server: a process that has loaded torch once, and from which all workers are forked.

The standard library starts it for the first worker, and has no public way to end it.
"""

from __future__ import annotations

import contextlib
import multiprocessing.forkserver
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mgpubench.launch.orphans import PARENT_VARIABLE, SCRATCH_VARIABLE
from mgpubench.machine.environment import TF32_OVERRIDE

PRELOAD_VARIABLE = "MGPUBENCH_PRELOAD"
"""Tells the fork server which modules to load, separated by spaces."""

COMPILED_CODE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


@contextlib.contextmanager
def environment_of_workers(scratch: Path, preload: Sequence[str]) -> Iterator[None]:
    """Set what the fork server inherits when it is started for the first worker.

    All runs of a session share the code that torch.compile makes. It is removed with the session,
    unless the user has chosen a folder for it.
    """
    changes = {
        # Python would look for its own modules in the current folder first.
        "PYTHONSAFEPATH": "1",
        # It would switch TF32 off unseen, whatever --precision says.
        TF32_OVERRIDE: None,
        # Always set: a value inherited from another mgpubench would name its folder.
        SCRATCH_VARIABLE: str(scratch),
        PARENT_VARIABLE: str(os.getpid()),
        PRELOAD_VARIABLE: " ".join(preload),
        COMPILED_CODE_VARIABLE: os.environ.get(COMPILED_CODE_VARIABLE, str(scratch / "compiled")),
    }
    before = {name: os.environ.get(name) for name in changes}
    _set_variables(changes)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def start_fork_server() -> None:
    """Start it if it is not running. This does not wait until it has loaded torch.

    A signal must not interrupt this: a server that is started and not yet known would never be
    ended.
    """
    multiprocessing.forkserver.ensure_running()


def end_fork_server() -> None:
    """Kill it: if it were asked to end, it would first finish loading torch."""
    if _kill_fork_server():
        server: Any = multiprocessing.forkserver._forkserver
        # Its socket may be gone with the scratch folder, and the process itself if SIGCHLD is
        # ignored.
        with contextlib.suppress(FileNotFoundError, ChildProcessError):
            server._stop()


def _kill_fork_server() -> bool:
    """False if there is none."""
    server: Any = multiprocessing.forkserver._forkserver
    if server._forkserver_pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(server._forkserver_pid, signal.SIGKILL)
    return True


@contextlib.contextmanager
def start_limit(seconds: float) -> Iterator[threading.Event]:
    """Kill the fork server and set the event if starting a worker takes longer than this.

    The start then fails. It must happen in the main thread, since a fork server ends with the
    thread that made it (see `orphans`). Nothing else would end a start that hangs.
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
