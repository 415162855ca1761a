"""The life of one worker process: isolate itself, do its task, leave a result or a failure."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from mgpubench.errors import BenchError, Interrupted, TorchUnavailable
from mgpubench.format import shorten, told
from mgpubench.launch.orphans import end_group_with_parent
from mgpubench.machine import host

MAX_MESSAGE = 10_000
MAX_DETAILS = 100_000
"""Characters of an error, and of its traceback, that are kept."""

SAVE_ATTEMPTS = 3
"""To leave a failure behind."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one worker is to do, and where it leaves what came of it."""

    target: str
    """`module:function`; imported in the worker, so that the parent needs no torch."""
    args: tuple[Any, ...]
    rank: int
    folder: Path
    """The launch's own folder, inside the scratch folder."""
    parent_lock: Path
    """A file that the parent holds locked for as long as it lives."""
    hide_gpus: bool
    """Keep this process off the GPUs altogether."""

    @property
    def result_file(self) -> Path:
        """Where the returned value goes."""
        return self.folder / f"result-{self.rank}.pickle"

    @property
    def failure_file(self) -> Path:
        """Where the error goes."""
        return self.folder / f"failure-{self.rank}.pickle"

    @property
    def log_file(self) -> Path:
        """Where the process's own output goes: torch speaks from every rank."""
        return self.folder / f"log-{self.rank}.txt"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as the worker saw it."""

    at_s: float
    """`time.monotonic()`, one clock for all processes of the machine."""
    error_type: str
    message: str
    details: str
    """The traceback."""
    refusal: BenchError | None = None
    """The error itself, where it is one of ours and may be raised again in the parent."""


def work(task: Task) -> NoReturn:
    """Do a task. The process ends with code 0 if and only if the result was written."""
    exit_code = 0
    spare = os.open(os.devnull, os.O_RDONLY)  # to tell of an error where no file can be opened
    try:
        _isolate(task)
        result = _resolve(task.target)(*task.args)
        _save(result, task.result_file)
    # Whatever ends a rank must be known to the parent, or the cause would be lost.
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.close(spare)
        _save_failure(error, task)
        exit_code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # whatever somebody's model has put there
            stream.flush()
    # At once: a thread of a user's model, or of a replica that waits for one that has failed, would
    # be waited for without end. The parent ends what is left of the group.
    os._exit(exit_code)


def _resolve(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    # A torch that does not fit this machine fails with ImportError, OSError and others.
    except Exception as error:
        if (getattr(error, "name", None) or "").startswith("mgpubench"):
            raise  # a bug of ours
        raise TorchUnavailable(
            f"torch cannot be imported: {error}",
            "Check the installation with: python -c 'import torch, torchvision'",
        ) from error
    return function


def _failure(error: BaseException) -> Failure:
    # Not Interrupted: signals are the parent's to hear, whatever somebody's model raises.
    own = error if isinstance(error, BenchError) and not isinstance(error, Interrupted) else None
    return Failure(
        at_s=time.monotonic(),
        error_type=type(error).__name__,
        message=shorten(told(error), MAX_MESSAGE),
        details=shorten("".join(traceback.format_exception(error)), MAX_DETAILS),
        refusal=own,
    )


def _save_failure(error: BaseException, task: Task) -> None:
    # Torch's handler raises when a loader worker dies, at any line, and perhaps once more here. Not
    # for ever: the error itself may be one that cannot even be told.
    for _ in range(SAVE_ATTEMPTS):
        with contextlib.suppress(RuntimeError):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with contextlib.suppress(OSError):  # no space left: the parent looks at that itself
                _save(_failure(error), task.failure_file)
            return


def _save(content: object, path: Path) -> None:
    """Write whole or not at all: the parent may look at any moment."""
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(pickle.dumps(content))
    unfinished.replace(path)


def _isolate(task: Task) -> None:
    # A group of its own: it takes the loader workers along when it is ended, and Ctrl-C in the
    # terminal reaches only the parent, which decides.
    os.setsid()
    end_group_with_parent(task.parent_lock)
    log = os.open(task.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    _set_environment(task)


def _set_environment(task: Task) -> None:
    for name in list(os.environ):
        if host.LAUNCHER_VARIABLES.fullmatch(name):
            del os.environ[name]
    # Nothing of a run on one machine is to be reachable from outside, or to need a host name.
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = host.loopback_interface()
    if task.hide_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
