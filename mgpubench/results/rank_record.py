"""What one process of a run measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiling:
    """What torch.compile did in one process."""

    first_pass_s: float
    """Seconds of the first forward and backward pass, in which it compiles."""
    graphs: int
    """Graphs compiled in that pass; 0 means that the model ran uncompiled."""
    recompiles: int
    """Graphs compiled after that pass."""
    graph_breaks: int
    """Places where the model leaves the compiled code."""


class Remark(NamedTuple):
    """Something that the loader noticed about an image, reported after the run."""

    kind: Literal["bad", "huge"]
    """bad: unreadable, and replaced by another image; huge: beyond Pillow's limit."""
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RankRecord:
    """What one process measured. Steps are listed warm-up first, then the window."""

    rank: int
    samples: list[int]
    """Samples that this rank took in each step, as counted."""
    step_times_s: list[float]
    data_waits_s: list[float]
    """Time in `next(loader)`, a part of the step time."""
    window_s: float
    """The measured steps, first mark to last mark, on this rank's step clock."""
    clock_span_s: float
    """Lead-in and window together, by the step clock."""
    host_span_s: float
    """The same by the host's clock. Both ends are synchronised, so the two must agree."""
    peak_memory_bytes: list[int]
    """One value for each device of this rank; empty on a CPU."""
    peak_reserved_bytes: tuple[int, ...] = ()
    """The most that torch took from the driver, one value for each device; empty on a CPU."""
    window_ended_s: float | None = None
    """Reading of `perf_counter` at the end of the window, one clock for all processes of a machine;
    None if it was not read."""
    final_loss: float
    """Loss of the last step, read after the window."""
    spin_up_s: float = 0.0
    """Training before the steps that are listed, until the clocks of GPUs are up; 0 on a CPU."""
    loader_step_s: float | None = None
    """Seconds that the loader alone takes for a step; None if it was not asked."""
    cpu_s: float = 0.0
    """CPU time of this process and its loader workers, since it started."""
    remarks: tuple[Remark, ...] = ()
    """Each remark once."""
    compiling: Compiling | None = None
    """What torch.compile did; None without --compile."""
    skipped_steps: int | None = None
    """Measured steps in which the GradScaler left the weights as they were; None without one."""
