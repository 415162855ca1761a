"""When a run is given up: at its time limit, or as soon as its pace shows that it will miss it."""

from __future__ import annotations

import time

from mgpubench.config.run_config import RunConfig
from mgpubench.errors import RunFailed
from mgpubench.format import format_duration
from mgpubench.launch.step_count import StepCount

PACE_TOLERANCE = 1.25
PACE_EVIDENCE = 0.02
"""A run is given up early only when its pace, seen over this share of the time limit, misses the
limit by this factor."""

STALLED_S = 5.0
STALLED_STEPS = 20
"""A run at its time limit hangs, and is not just slow, if nothing came for so long."""


def check_pace(config: RunConfig, count: StepCount, elapsed_s: float) -> None:
    """End a run that is over its time, or that its pace shows cannot keep it.

    Raises:
        RunFailed: naming the steps done, the rate and the limit.
    """
    pace_s = count.seconds_per_step
    left_s = (config.total_steps - count.steps) * (pace_s or 0.0)
    seen_s = (pace_s or 0.0) * (count.steps - 1)
    warmed_up = count.steps >= config.warmup_steps and seen_s >= PACE_EVIDENCE * config.timeout_s
    over = elapsed_s > config.timeout_s
    if not over and not (warmed_up and elapsed_s + left_s > PACE_TOLERANCE * config.timeout_s):
        return
    rate = "" if pace_s is None else f", {pace_s:.3g} s a step"
    outlook = f"; it would need about {format_duration(elapsed_s + left_s)}" if pace_s else ""
    idle_s = (time.perf_counter_ns() - count.last_step_ns) / 1e9
    if over and pace_s is not None and idle_s > max(STALLED_S, STALLED_STEPS * pace_s):
        outlook = f"; the last one {format_duration(idle_s)} ago: a rank is stopped, or hangs"
    verb = "did not end" if over else "cannot end"
    raise RunFailed(
        f"{config.label} {verb} within --timeout {config.timeout_s:g} s: {count.steps} of "
        f"{config.total_steps} steps done{rate}{outlook}",
        "Raise --timeout, or lower --steps, --batch-per-gpu or --image-size.",
    )
