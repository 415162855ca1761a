"""The step count that rank 0 keeps in a mapped file, for the parent to read at any time."""

from __future__ import annotations

import mmap
import struct
import time
from dataclasses import dataclass
from pathlib import Path

STEP_COUNT_FILE = "steps"

_LAYOUT = struct.Struct("=qqq")
"""Steps done; host time in ns at the end of the first step, and at the end of the last."""


@dataclass(frozen=True, slots=True)
class StepCount:
    """The progress of a run."""

    steps: int
    first_step_ns: int
    """`perf_counter_ns` at the end of step 1. All processes share this clock."""
    last_step_ns: int

    @property
    def seconds_per_step(self) -> float | None:
        """Mean over all steps but the first, which is never representative."""
        if self.steps < 2:
            return None
        return (self.last_step_ns - self.first_step_ns) / 1e9 / (self.steps - 1)


class StepCounter:
    """The worker's side: one call per step, which takes about a microsecond."""

    def __init__(self, path: Path) -> None:
        with path.open("wb+") as file:
            file.truncate(_LAYOUT.size)
            self._memory = mmap.mmap(file.fileno(), _LAYOUT.size)
        self._steps = 0
        self._first_ns = 0

    def advance(self) -> None:
        """Count one more step."""
        now = time.perf_counter_ns()
        self._steps += 1
        if self._steps == 1:
            self._first_ns = now
        _LAYOUT.pack_into(self._memory, 0, self._steps, self._first_ns, now)

    def touch(self) -> None:
        """Show that the process lives, without a step."""
        now = time.perf_counter_ns()
        _LAYOUT.pack_into(self._memory, 0, self._steps, self._first_ns or now, now)


def read_step_count(path: Path) -> StepCount:
    """The parent's side. All zero until the worker has begun."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    if len(content) < _LAYOUT.size:
        return StepCount(0, 0, 0)
    return StepCount(*_LAYOUT.unpack(content[: _LAYOUT.size]))
