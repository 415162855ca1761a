"""The finding about drift within the window, which only several runs of a row can show."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mgpubench.analysis import stats
from mgpubench.analysis.findings.kind import FindingKind
from mgpubench.results.schema import RunRecord

NOT_STEADY = "not-steady"

CHANGE_LIMIT = 0.01
MIN_RUNS = 3
ERROR_RATE = 0.01
"""Not steady: the mean change of the step time over the window, from 3 runs on, is more than 1 %,
and a 99 % interval excludes 0. Single runs would show it by chance in 9 to 24 of 100."""


def is_steady(runs: Sequence[RunRecord]) -> bool:
    """False if the runs of a row became faster or slower over the window, and not by chance."""
    changes = [run.step_time_change for run in runs if run.step_time_change is not None]
    if len(changes) < MIN_RUNS:
        return True
    centre = stats.mean(changes)
    spread = math.sqrt(stats.variance(changes))
    half_width = stats.t_half_width(spread, len(changes), ERROR_RATE)
    return abs(centre) <= max(CHANGE_LIMIT, half_width)


KINDS = (
    FindingKind(
        code=NOT_STEADY,
        meaning=(
            "Over the window the step time changed by more than 1 % in the mean of the row's runs "
            "(`step_time_change`), and more than by chance."
        ),
        remedy=(
            "If it became faster (negative): a longer warm-up. If it became slower: look for heat, "
            "clocks and other work."
        ),
    ),
)
