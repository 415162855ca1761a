"""When a run is ended early: at its time limit, or once its pace shows that it will miss it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from mgpubench.errors import RunFailed
from mgpubench.format import format_duration
from mgpubench.launch.step_count import StepCount

PACE_TOLERANCE = 1.25
PACE_EVIDENCE = 0.02
"""A run is ended early only if its pace, observed for this share of the time limit, misses the
limit by this factor."""

STALLED_S = 5.0
STALLED_STEPS = 20
"""At its time limit a run hangs, and is not just slow, if there was no step for this long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """What is expected of the steps of a run."""

    label: str
    """The run in messages."""
    warmup_steps: int
    total_steps: int
    timeout_s: float
    """For all steps, and for the start."""
    sizes: str = "--batch-per-gpu or --image-size"
    """The options that decide how long a step takes, with their values."""

    def check(self, count: StepCount, elapsed_s: float) -> None:
        """End a run that is over its time limit, or whose pace shows that it will be.

        Raises:
            RunFailed: naming the steps done, the rate and the limit.
        """
        left_s = (self.total_steps - count.steps) * (count.seconds_per_step or 0.0)
        expected_s = elapsed_s + left_s
        is_over = elapsed_s > self.timeout_s
        if not is_over and not self._will_be_late(count, expected_s):
            return
        verb = "did not end" if is_over else "cannot end"
        raise RunFailed(
            f"{self.label} {verb} within --timeout {self.timeout_s:g} s: {count.steps} of "
            f"{self.total_steps} steps done{_rate_and_outlook(count, expected_s, is_over=is_over)}",
            f"Raise --timeout, or use fewer --steps, or less than {self.sizes}.",
        )

    def _will_be_late(self, count: StepCount, expected_s: float) -> bool:
        seen_s = (count.seconds_per_step or 0.0) * (count.steps - 1)
        has_evidence = seen_s >= PACE_EVIDENCE * self.timeout_s
        is_warm = count.steps >= self.warmup_steps
        return is_warm and has_evidence and expected_s > PACE_TOLERANCE * self.timeout_s


def _rate_and_outlook(count: StepCount, expected_s: float, *, is_over: bool) -> str:
    """The time of a step, and what it means for the run; empty if it is unknown."""
    pace_s = count.seconds_per_step
    if pace_s is None:
        return ""
    rate = f", {pace_s:.3g} s a step"
    idle_s = (time.perf_counter_ns() - count.last_step_ns) / 1e9
    if is_over and idle_s > max(STALLED_S, STALLED_STEPS * pace_s):
        return f"{rate}; the last one {format_duration(idle_s)} ago: a rank has stopped or hangs"
    return f"{rate}; it would need about {format_duration(expected_s)}" if pace_s else rate
