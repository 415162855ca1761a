"""Looking at processes from outside, as `ps` does; Linux only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """One line of `ps`."""

    pid: int
    parent_pid: int
    state: str
    session: int
    began: int
    """In ticks since the machine was started. A process id says nothing: they begin again."""
    command: str

    @property
    def age(self) -> tuple[int, int]:
        """Sorts processes: the oldest one first."""
        return self.began, self.pid

    @property
    def is_worker(self) -> bool:
        """A child of the fork server that has made itself a session of its own, or its child."""
        return "forkserver" in self.command and self.session != os.getsid(0)


def all_processes() -> list[Process]:
    """Every process that is not a zombie."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError):  # it may end meanwhile
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if fields[0] != "Z":
                pid, parent_pid, session, began = map(
                    int, (entry.name, fields[1], fields[3], fields[19])
                )
                found.append(Process(pid, parent_pid, fields[0], session, began, command))
    return found


def descendants(pid: int) -> list[Process]:
    """All processes below one."""
    everyone = all_processes()
    below: list[Process] = []
    parents = {pid}
    while children := [p for p in everyone if p.parent_pid in parents and p not in below]:
        below += children
        parents = {child.pid for child in children}
    return below


def open_files(pid: int) -> set[str]:
    """The paths of the files that a process has open; none if it has ended."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found.add(str(entry.readlink()))
    return found


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Poll until a condition holds; fail the test if it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


class Command:
    """A `mgpubench` that runs in the background, with signals as a terminal would have them."""

    def __init__(
        self,
        *arguments: object,
        cwd: Path,
        env: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
    ) -> None:
        self.err_file = cwd / "stderr.txt"
        self.out_file = cwd / "stdout.txt"
        with self.err_file.open("wb") as err, self.out_file.open("wb") as out:
            self.popen = subprocess.Popen(
                [*prefix, sys.executable, "-m", "mgpubench", *map(str, arguments)],
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                # A shell's background job would ignore it, and so would its children.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )
        self.began_s = self.ended_s = time.monotonic()
        self.seen: set[int] = set()

    @property
    def err(self) -> str:
        """All of stderr so far."""
        return self.err_file.read_text()

    @property
    def out(self) -> str:
        """All of stdout so far."""
        return self.out_file.read_text()

    def family(self) -> list[Process]:
        """The living descendants; all that were ever seen are remembered."""
        family = descendants(self.popen.pid)
        self.seen |= {process.pid for process in family}
        return family

    def ranks(self) -> list[Process]:
        """The rank processes, oldest first."""
        family = self.family()
        servers = {p.pid for p in family if p.parent_pid == self.popen.pid}
        return sorted(
            (p for p in family if p.parent_pid in servers and p.session == p.pid),
            key=lambda process: process.age,
        )

    def wait(self, seconds: float = 60) -> int:
        """The exit code, once it has ended."""
        if self.popen.returncode is None:
            self.popen.wait(seconds)
            self.ended_s = time.monotonic()
        return self.popen.returncode

    def kill(self) -> None:
        """End it and all that was seen below it, even if the test failed."""
        self.family()
        self.popen.kill()
        self.popen.wait()
        for pid in self.seen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def assert_none_left(self, seconds: float = 5) -> None:
        """No process that was seen below this one is alive."""
        wait_until(
            lambda: not [p for p in all_processes() if p.pid in self.seen],
            seconds,
            f"end of all descendants of {self.popen.pid}",
        )


def mgpubench(
    *arguments: object,
    cwd: Path,
    env: dict[str, str] | None = None,
    prefix: tuple[str, ...] = (),
    seconds: float = 120,
) -> Command:
    """A `mgpubench` that has ended; `prefix` is a command that starts it."""
    command = Command(*arguments, cwd=cwd, env=env, prefix=prefix)
    command.wait(seconds)
    return command
