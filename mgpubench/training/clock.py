"""The clock of a run: marks between steps, which are read only after all work has finished.

On CUDA a mark is an event on the compute stream. That is right in both techniques: DDP makes this
stream wait for its all-reduce before the optimizer, and with DataParallel the optimizer on the
first device waits for the gradients of all. On a CPU a mark is `perf_counter`, since every kernel
has finished when a step returns.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Protocol

import torch


class StepClock(Protocol):
    """Marks the borders between consecutive steps."""

    def mark(self) -> None:
        """Mark the border between two steps."""

    def intervals_s(self) -> list[float]:
        """Seconds between consecutive marks. Call this after the device has finished."""


class NoClock:
    """Marks nothing, for steps whose times are not wanted one by one."""

    def mark(self) -> None:
        """Mark nothing."""

    def intervals_s(self) -> list[float]:
        """No times."""
        return []


class HostClock:
    """Marks by the host's monotonic clock."""

    def __init__(self) -> None:
        self._marks_ns: list[int] = []

    def mark(self) -> None:
        """Record the host's time."""
        self._marks_ns.append(time.perf_counter_ns())

    def intervals_s(self) -> list[float]:
        """Seconds between consecutive marks."""
        return [(after - before) / 1e9 for before, after in pairwise(self._marks_ns)]


class CudaClock:
    """Marks by events on the current stream of a device. The events are made before the loop."""

    def __init__(self, device: torch.device, num_marks: int) -> None:
        self._stream = torch.cuda.current_stream(device)
        self._spare = [torch.cuda.Event(enable_timing=True) for _ in range(num_marks)]
        self._marks: list[torch.cuda.Event] = []
        # CUDA creates an event at its first record, which must not happen inside the window.
        for event in self._spare:
            event.record(self._stream)

    def mark(self) -> None:
        """Record the next event. The host does not wait."""
        event = self._spare.pop()
        event.record(self._stream)
        self._marks.append(event)

    def intervals_s(self) -> list[float]:
        """Seconds between consecutive events."""
        return [before.elapsed_time(after) / 1e3 for before, after in pairwise(self._marks)]


def make_clock(device: torch.device, num_steps: int) -> StepClock:
    """The clock for a number of steps on a device."""
    return CudaClock(device, num_steps + 1) if device.type == "cuda" else HostClock()
