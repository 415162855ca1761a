"""Findings about time: clocks, stalls, and other processes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from mgpubench.analysis.findings.kind import FindingKind, MeasuredRun
from mgpubench.analysis.metrics import measured_steps, slowest_rank, stalled_share
from mgpubench.format import format_percent
from mgpubench.results.rank_record import RankRecord

CLOCK_TOLERANCE = 0.01
MIN_CLOCK_GAP_S = 0.001
"""The two clocks may differ by this share of the span, and always by a millisecond: waiting for a
GPU to finish takes some time, which only the host's clock counts."""

OTHERS_LIMIT = 0.2
"""Quiet runs show up to 7 %, and runs beside two busy loops 31 to 59 % on two cores."""

STALL_LIMIT = 0.01
"""Normal noise exceeds this share in fewer than 1 of 1,000 runs, correlated and skewed noise in up
to 2 of 100."""

SHORT_WINDOW_S = 1.0


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


def _stalls(run: MeasuredRun) -> Iterator[str]:
    times_s = measured_steps(slowest_rank(run.ranks).step_times_s, run.config.steps)
    share = stalled_share(times_s)
    if share is not None and share > STALL_LIMIT:
        yield (
            f"{format_percent(share)} of the window was lost in steps that took far longer than "
            f"the others (limit {format_percent(STALL_LIMIT)}): steps.csv shows which"
        )


def _window_is_short(run: MeasuredRun) -> Iterator[str]:
    window_s = run.figures.window_s
    if run.config.device_type == "cuda" and window_s is not None and window_s < SHORT_WINDOW_S:
        steps = math.ceil(run.config.steps * SHORT_WINDOW_S / window_s)
        yield (
            f"the window took {window_s:.2g} s, in which clocks and other work may not average "
            f"out; use --steps {steps}"
        )


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
        code="stalls",
        meaning=(
            "More than 1 % of the window was lost in single steps that took far longer than the "
            "others. The median does not show this, and the throughput does."
        ),
        remedy="Look for other work, garbage collection, checkpoints, a slow disk or network.",
        check=_stalls,
    ),
    FindingKind(
        code="short-window",
        meaning="On GPUs the measured steps took less than a second together.",
        remedy="More `--steps`.",
        check=_window_is_short,
    ),
)
