"""The fork server: a process that has loaded torch once, and from which all workers are forked.

The standard library starts it for the first worker, and has no public way to end it.
"""

from __future__ import annotations

import contextlib
import multiprocessing.forkserver
import multiprocessing.process
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mgpubench.launch.orphans import PARENT_VARIABLE, SCRATCH_VARIABLE
from mgpubench.machine.environment import TF32_OVERRIDE, waiting_on_cpu
from mgpubench.machine.host import may_have_gpu

PRELOAD_VARIABLE = "MGPUBENCH_PRELOAD"
"""Tells the fork server which modules to load, separated by spaces."""

COMPILED = {"TORCHINDUCTOR_CACHE_DIR": "compiled", "TORCH_EXTENSIONS_DIR": "extensions"}
"""Folders for what torch.compile, and packages such as DeepSpeed, compile; by their variable."""

PRELOAD = "mgpubench.launch.preload"

MODULE_FUNCTIONS = ("ensure_running", "connect_to_new_process", "get_inherited_fds")
"""Functions of the standard library's module that are bound to its one server."""


class ForkServer:
    """One fork server with an environment of its own.

    The standard library has one for the whole process. A session with variants that set environment
    variables needs several: OMP, malloc and others read them only when they are loaded.
    """

    def __init__(self, scratch: Path, preload: Sequence[str], variables: Mapping[str, str]) -> None:
        self._server: Any = multiprocessing.forkserver.ForkServer()
        self._server.set_forkserver_preload([PRELOAD])
        self._scratch = scratch
        self._variables = _variables_of_workers(scratch, preload, variables)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Start it if it is not running, and let processes be made and forked from it.

        This does not wait until it has loaded torch. A signal must not interrupt the start: a
        server that is started and not yet known would never be ended.
        """
        own: Any = multiprocessing.process.current_process()
        # Also for the server's socket: its usual folder would be left if this process were killed.
        own._config["tempdir"] = str(self._scratch)
        before = {name: os.environ.get(name) for name in self._variables}
        _set_variables(self._variables)
        module: Any = multiprocessing.forkserver
        functions = {name: getattr(module, name) for name in MODULE_FUNCTIONS}
        try:
            self._server.ensure_running()
            for name in MODULE_FUNCTIONS:
                setattr(module, name, getattr(self._server, name))
            yield
        finally:
            for name, function in functions.items():
                setattr(module, name, function)
            _set_variables(before)
            del own._config["tempdir"]

    def end(self) -> None:
        """Kill it: if it were asked to end, it would first finish loading torch."""
        if self.kill():
            # Its socket may be gone with the scratch folder, and the process itself if SIGCHLD is
            # ignored.
            with contextlib.suppress(FileNotFoundError, ChildProcessError):
                self._server._stop()

    def kill(self) -> bool:
        """Kill the process, and leave the rest. False if there is none."""
        if self._server._forkserver_pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._server._forkserver_pid, signal.SIGKILL)
        return True

    @contextlib.contextmanager
    def start_limit(self, seconds: float) -> Iterator[threading.Event]:
        """Kill it and set the event if starting a worker takes longer than this.

        The start then fails. It must happen in the main thread, since a fork server ends with the
        thread that made it (see `orphans`). Nothing else would end a start that hangs.
        """
        is_over = threading.Event()

        def give_up() -> None:
            is_over.set()
            self.kill()

        timer = threading.Timer(seconds, give_up)
        timer.daemon = True
        timer.start()
        try:
            yield is_over
        finally:
            timer.cancel()


def _variables_of_workers(
    scratch: Path, preload: Sequence[str], variables: Mapping[str, str]
) -> dict[str, str | None]:
    """What the fork server inherits, and its workers from it; None for what it must not.

    All runs of a session share what is compiled. It is removed with the session, unless the user
    has chosen a folder for it.
    """
    return {
        # Python would look for its own modules in the current folder first.
        "PYTHONSAFEPATH": "1",
        # It would switch TF32 off unseen, despite --precision.
        TF32_OVERRIDE: None,
        # Always set: a value inherited from another mgpubench would name its folder.
        SCRATCH_VARIABLE: str(scratch),
        PARENT_VARIABLE: str(os.getpid()),
        PRELOAD_VARIABLE: " ".join(preload),
        **{name: os.environ.get(name, str(scratch / folder)) for name, folder in COMPILED.items()},
        **waiting_on_cpu({**os.environ, **variables}, may_have_gpu=may_have_gpu()),
        **variables,
    }


def _set_variables(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
