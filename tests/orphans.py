"""Processes whose starter is killed, such as torchrun or srun; Linux only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.processes import Process, all_processes, descendants, wait_until

PR_SET_CHILD_SUBREAPER = 36
"""Option of prctl(2): be the new parent of the children of a process that dies."""


@contextmanager
def adopting() -> Iterator[None]:
    """This process gets the children of a process that dies, and so their exit codes."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


@dataclass
class Orphan:
    """A `mgpubench` whose starter was killed."""

    pid: int
    err_file: Path
    ended_s: float = 0.0
    code: int | None = None
    began_s: float = 0.0

    @property
    def err(self) -> str:
        return self.err_file.read_text()

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        until_s = time.monotonic() + 30
        while self.code is None:
            assert time.monotonic() < until_s, self.err
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code, self.ended_s = os.waitstatus_to_exitcode(status), time.monotonic()
            time.sleep(0.02)
        return self.code


def agents_below(starter: int) -> list[Process]:
    """The processes that a starter has started, and that have a fork server."""
    below = descendants(starter)
    servers = {process.parent_pid for process in below if "forkserver" in process.command}
    agents = [p for p in below if p.pid in servers and "forkserver" not in p.command]
    return sorted(agents, key=lambda process: process.age)


def kill_starter(starter: subprocess.Popen[bytes]) -> tuple[list[int], set[int]]:
    """Kill it. Returns its agents, and all that was below it."""
    agents = [agent.pid for agent in agents_below(starter.pid)]
    family = {process.pid for process in descendants(starter.pid)}
    starter.kill()
    starter.wait()
    return agents, family


def assert_ended(family: set[int]) -> None:
    def left() -> list[Process]:
        return [process for process in all_processes() if process.pid in family]

    wait_until(lambda: not left(), 10, "end of all that the starter had started")


@contextmanager
def ending(starter: subprocess.Popen[bytes]) -> Iterator[None]:
    """At last, end it and all that is below it, even if the test failed."""
    try:
        yield
    finally:
        family = descendants(starter.pid)
        starter.kill()
        starter.wait()
        for process in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
