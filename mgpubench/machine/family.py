"""CPU time and memory of a process and of all its descendants, cheaply enough for every second."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

SEARCH_EVERY_S = 10.0
"""Where the kernel has no lists of children, all processes of the machine must be looked at."""

PROC = Path("/proc")


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilyUse:
    """What the processes of a family use at one moment."""

    cpu_s: float
    """CPU time that they used since the last look. What a process used that has ended since is
    not in it."""
    memory_bytes: int
    processes: int


class Family:
    """A process and its descendants, without some of them."""

    def __init__(self, ancestor: int, without: Collection[int] = ()) -> None:
        self._ancestor = ancestor
        self._without = without
        self._processes: dict[int, psutil.Process] = {}
        self._cpu_s: dict[int, float] = {}
        self._searched_at_s = -SEARCH_EVERY_S
        self._has_lists = (PROC / "self" / "task").exists() and _children(ancestor) is not None

    def use(self) -> FamilyUse:
        """What they have used since the last call, and use now."""
        self._look_for_members()
        cpu_s, memory_bytes, seen = 0.0, 0, {}
        for pid, process in list(self._processes.items()):
            use = _use_of(process)
            if use is None:
                del self._processes[pid]
                continue
            seen[pid] = use[0]
            cpu_s += max(0.0, use[0] - self._cpu_s.get(pid, 0.0))
            memory_bytes += use[1]
        is_first, self._cpu_s = not self._cpu_s, seen
        return FamilyUse(
            cpu_s=0.0 if is_first else cpu_s, memory_bytes=memory_bytes, processes=len(seen)
        )

    def _look_for_members(self) -> None:
        if self._has_lists:
            members = set(self._descendants(self._ancestor))
        else:
            now_s = time.monotonic()
            if now_s - self._searched_at_s < SEARCH_EVERY_S:
                return
            self._searched_at_s = now_s
            members = {self._ancestor, *_search(self._ancestor)} - set(self._without)
        for pid in members - self._processes.keys():
            with contextlib.suppress(psutil.Error):  # it has ended already
                self._processes[pid] = psutil.Process(pid)
        for pid in self._processes.keys() - members:
            del self._processes[pid]

    def _descendants(self, pid: int) -> Iterator[int]:
        if pid not in self._without:
            yield pid
            for child in _children(pid) or ():
                yield from self._descendants(child)


def _children(pid: int) -> list[int] | None:
    """The children of a process's main thread, which makes all of ours; None if it is unknown."""
    try:
        return [int(word) for word in (PROC / f"{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return None


def _search(ancestor: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(ancestor).children(recursive=True)]
    except psutil.Error:
        return []


def _use_of(process: psutil.Process) -> tuple[float, int] | None:
    """CPU seconds and resident bytes of a process; None if it has ended, or hides them."""
    try:
        times = process.cpu_times()
        return times.user + times.system, process.memory_info().rss
    except psutil.Error:
        return None
