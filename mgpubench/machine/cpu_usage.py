"""CPU time used so far, by all processes and by this one."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import psutil

from mgpubench.machine.ask import known
from mgpubench.machine.host import usable_core_numbers

BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
"""The kinds of time in which a core is in use, under psutil's names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuTime:
    """CPU time used so far, at one moment of the monotonic clock."""

    at_s: float
    busy_s: float | None
    """Used on the usable cores by all processes, and by neighbours of a virtual machine."""
    num_cores: int
    """The cores of which `busy_s` is the sum."""
    own_s: float
    """Used by this process."""


def cpu_time() -> CpuTime:
    """The CPU time used up to now. The kernel counts it in steps of 10 ms."""
    own = os.times()
    cores = _core_times()
    usable = usable_core_numbers()
    # If the system hides a core, the others say nothing about the work on it.
    counted = [cores[number] for number in usable] if max(usable) < len(cores) else []
    busy_s = [getattr(core, name, 0.0) for core in counted for name in BUSY]
    return CpuTime(
        at_s=time.monotonic(),
        # All zero is what some containers show, and not an idle machine.
        busy_s=sum(busy_s) if any(busy_s) else None,
        num_cores=len(counted),
        own_s=own.user + own.system,
    )


def _core_times() -> list[Any]:
    """What psutil says about each core; empty if it cannot read it."""
    return list(known(lambda: psutil.cpu_times(percpu=True)) or [])
