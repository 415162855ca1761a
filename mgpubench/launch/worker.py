"""The life of a worker process: isolate itself, do its task, leave a result or a failure."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
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
from mgpubench.format import message_of, shorten
from mgpubench.launch.environment import Meeting, prepare_environment
from mgpubench.launch.orphans import end_group_with_parent
from mgpubench.results.whole_file import write_whole

FAILURE_MESSAGE_CHARACTERS = 10_000
FAILURE_DETAILS_CHARACTERS = 100_000
"""How much of an error and of its traceback is kept."""

SAVE_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Task:
    """What one worker has to do, and where it leaves the outcome."""

    target: str
    """`module:function`, imported in the worker, so that the parent needs no torch."""
    args: tuple[Any, ...]
    rank: int
    folder: Path
    """The folder of the job, inside the scratch folder."""
    parent_lock: Path
    """A file that the parent keeps locked as long as it lives."""
    hide_gpus: bool
    """Keep this process off the GPUs altogether."""
    meeting: Meeting | None = None
    """Where it meets ranks on other machines; None if there are none."""

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
        """Where the output of the process goes: torch prints from every rank."""
        return self.folder / f"log-{self.rank}.txt"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as the worker saw it."""

    at_s: float
    """`time.monotonic()`, which is one clock for all processes of the machine."""
    error_type: str
    message: str
    details: str
    """The traceback."""
    refusal: BenchError | None = None
    """The error itself if it is one of ours, which the parent may raise again."""


def work(task: Task) -> NoReturn:
    """Do a task. The process ends with code 0 if and only if the result was written."""
    exit_code = 0
    spare = os.open(os.devnull, os.O_RDONLY)  # closed to report an error if no file can be opened
    try:
        _isolate(task)
        result = _resolve(task.target)(*task.args)
        _save(result, task.result_file)
    # Everything that ends a rank is reported to the parent, or the cause would be lost.
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.close(spare)
        _save_failure(error, task)
        exit_code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a user's model may have replaced them
            stream.flush()
    # At once: Python would wait without end for threads of a user's model, or of a replica that
    # waits for one that has failed. The parent ends the rest of the process group.
    os._exit(exit_code)


def _resolve(target: str) -> Callable[..., Any]:
    module, _, name = target.partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    # A torch that does not fit this machine fails with ImportError, OSError and others.
    except Exception as error:
        if (getattr(error, "name", None) or "").startswith("mgpubench"):
            raise  # our own bug
        raise TorchUnavailable(
            f"torch cannot be imported: {error}",
            "Check the installation with: python -c 'import torch, torchvision'",
        ) from error
    return function


def _failure(error: BaseException) -> Failure:
    # Not Interrupted: the parent hears signals itself, even if a user's model raises such an error.
    own = error if isinstance(error, BenchError) and not isinstance(error, Interrupted) else None
    return Failure(
        at_s=time.monotonic(),
        error_type=type(error).__name__,
        message=shorten(message_of(error), FAILURE_MESSAGE_CHARACTERS),
        details=shorten("".join(traceback.format_exception(error)), FAILURE_DETAILS_CHARACTERS),
        refusal=own,
    )


def _save_failure(error: BaseException, task: Task) -> None:
    # Torch's handler raises when a loader worker dies, at any line, and perhaps here again. The
    # number of attempts is limited, since the error itself may fail to be formatted.
    for _ in range(SAVE_ATTEMPTS):
        with contextlib.suppress(RuntimeError):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with contextlib.suppress(OSError):  # no space left: the parent checks that itself
                _save(_failure(error), task.failure_file)
            return


def _save(content: object, path: Path) -> None:
    # Whole or not at all: the parent may look at any moment.
    with write_whole(path, durable=False) as file:
        file.write(pickle.dumps(content))


def _isolate(task: Task) -> None:
    # A process group of its own: ending it ends the loader workers too, and Ctrl-C in the terminal
    # reaches only the parent, which decides.
    os.setsid()
    end_group_with_parent(task.parent_lock)
    log = os.open(task.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    prepare_environment(hide_gpus=task.hide_gpus, meeting=task.meeting)
    # Unset again, so that a user's module may set it: this process comes from a fork server.
    multiprocessing.set_start_method(None, force=True)
