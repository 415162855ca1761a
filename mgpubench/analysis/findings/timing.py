"""Findings about time: clocks, drift, and other processes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mgpubench.analysis.findings.kind import FindingKind, MeasuredRun
from mgpubench.analysis.metrics import measured_steps, slowest_rank
from mgpubench.format import format_percent
from mgpubench.results.rank_record import RankRecord

CLOCK_TOLERANCE = 0.01
MIN_CLOCK_GAP_S = 0.001
"""The two clocks may differ by this share of the span, and always by a millisecond: waiting for a
GPU to finish takes some time, which only the host's clock counts."""

OTHERS_LIMIT = 0.2
"""Quiet runs show up to 7 %, and runs beside two busy loops 31 to 59 % on two cores."""

DRIFT_LIMIT = 0.01
DRIFT_STANDARD_ERRORS = 2.0
DRIFT_BATCHES = 8
MIN_STEPS_FOR_DRIFT = 5 * DRIFT_BATCHES
"""Not steady: over the window a line through 8 batch means changes by more than 1 %, and by more
than twice its standard error."""


def _clocks_differ(run: MeasuredRun) -> Iterator[str]:
    shares = [
        share
        for rank in run.ranks
        if (share := clock_disagreement(rank)) > CLOCK_TOLERANCE
        and share * rank.host_span_s > MIN_CLOCK_GAP_S
    ]
    if shares:
        yield (
            f"device events and host clock differ by {format_percent(max(shares))} of the time "
            f"(limit {format_percent(CLOCK_TOLERANCE)}); is there other work on the GPU?"
        )


def clock_disagreement(rank: RankRecord) -> float:
    """Difference of step clock and host clock over the same span, as a share of it."""
    return abs(rank.clock_span_s - rank.host_span_s) / rank.host_span_s


def _others_took_the_cores(run: MeasuredRun) -> Iterator[str]:
    share = run.figures.others_cpu_share
    if share is not None and share > OTHERS_LIMIT:
        yield (
            f"other processes took {format_percent(share)} of the CPU time (limit "
            f"{format_percent(OTHERS_LIMIT)}): on busy cores, modes with several threads per "
            "process can be many times slower; repeat it on a quiet machine"
        )


def _drifts(run: MeasuredRun) -> Iterator[str]:
    times_s = measured_steps(slowest_rank(run.ranks).step_times_s, run.config.steps)
    if len(times_s) < MIN_STEPS_FOR_DRIFT:
        return
    change, error = drift(times_s)
    if abs(change) > DRIFT_LIMIT and abs(change) > DRIFT_STANDARD_ERRORS * error:
        advice = "what slowed it down: heat, clocks, other work?"
        if change < 0:
            advice = f"try --warmup-steps {max(20, 2 * run.config.warmup_steps)}"
        yield (
            f"step times changed by {change * 100:+.1f} % of their mean over the window (limit "
            f"{format_percent(DRIFT_LIMIT)}) after {run.config.warmup_steps} warm-up steps; "
            f"{advice}"
        )


def drift(times_s: Sequence[float]) -> tuple[float, float]:
    """Relative change of the step time over the window, and its standard error.

    Least squares through the means of DRIFT_BATCHES equal batches; a remainder of steps at the
    start is left out. Batch means, since single steps are correlated.
    """
    size = len(times_s) // DRIFT_BATCHES
    first = len(times_s) - size * DRIFT_BATCHES
    means = [
        math.fsum(times_s[start : start + size]) / size
        for start in range(first, len(times_s), size)
    ]
    centre = (DRIFT_BATCHES - 1) / 2
    average = math.fsum(means) / DRIFT_BATCHES
    spread = sum((i - centre) ** 2 for i in range(DRIFT_BATCHES))
    slope = math.fsum((i - centre) * mean for i, mean in enumerate(means)) / spread
    residuals = math.fsum(
        (mean - average - slope * (i - centre)) ** 2 for i, mean in enumerate(means)
    )
    error = math.sqrt(residuals / (DRIFT_BATCHES - 2) / spread)
    whole = (DRIFT_BATCHES - 1) / average
    return slope * whole, error * whole


KINDS = (
    FindingKind(
        code="clock-mismatch",
        meaning=(
            "The GPU's clock and the host's clock disagree about the time of the run by more than "
            f"{CLOCK_TOLERANCE * 100:.0f} %, and by more than a millisecond."
        ),
        remedy="Look for other work on the GPU.",
        check=_clocks_differ,
    ),
    FindingKind(
        code="busy-machine",
        meaning=(
            "Other processes, or neighbours of a virtual machine, took more than "
            f"{OTHERS_LIMIT * 100:.0f} % of the CPU time during the run (`others_cpu_share`). A "
            "mode with several threads per process can then be many times slower."
        ),
        remedy="Repeat the run when the machine is quiet.",
        check=_others_took_the_cores,
        row_warning=(
            "most runs were disturbed by other processes: repeat them on a quiet machine before "
            "you believe a ratio"
        ),
    ),
    FindingKind(
        code="not-steady",
        meaning=(
            f"Over the window the step time changed by more than {DRIFT_LIMIT * 100:.0f} %, and by "
            "more than its noise."
        ),
        remedy=(
            "If the steps became faster, use a longer warm-up. If they became slower, look for "
            "heat, changing clock rates and other work."
        ),
        check=_drifts,
    ),
)
