"""The horizontal axis of pictures that show runs in the order in which they were made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from mgpubench.report.plots.measured import Panel
from mgpubench.report.plots.style import FAINT
from mgpubench.results.schema import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

T = TypeVar("T")

MIN_RUNS = 3
"""Fewer have no order worth a look."""
MAX_POINTS = 2_000
"""Of all rows together. With more, only every so many runs are drawn."""
LARGE_POINTS = 300
"""Up to so many points are large."""
EDGE = 0.015
"""Left free on both sides, as a share of the runs."""
MAX_BORDERS = 20
"""So many borders between sessions are drawn."""


def runs_in_order(panel: Panel) -> list[RunRecord]:
    """All runs of a group, also those that failed, as they were made."""
    runs = [run for each in panel.series for run in each.pool.runs]
    return sorted(
        runs, key=lambda run: (run.session_id, run.sitting or 1, run.position or 0, run.round or 0)
    )


def step_and_size(num_runs: int) -> tuple[int, float]:
    """Of how many runs one is drawn, and the size of its marker in points."""
    return -(-num_runs // MAX_POINTS), 4.0 if num_runs <= LARGE_POINTS else 2.0


def thinned(points: Sequence[T], step: int, height: Callable[[T], float]) -> list[T]:
    """Every so many of them, and the highest and the lowest."""
    ends = {id(min(points, key=height)), id(max(points, key=height))}
    return [point for place, point in enumerate(points) if place % step == 0 or id(point) in ends]


def draw_run_axis(axes: Axes, ordered: Sequence[RunRecord]) -> None:
    """Number the runs from 1, and draw dotted lines between sessions."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("runs in the order in which they were made")
    step, _ = step_and_size(len(ordered))
    if step > 1:
        explain(axes, f"1 of {step} is drawn, and the highest and the lowest of each row")
    edge = max(0.6, EDGE * len(ordered))
    axes.set_xlim(1 - edge, len(ordered) + edge)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    borders = [
        place + 0.5
        for place, (run, after) in enumerate(pairwise(ordered), 1)
        if run.session_id != after.session_id
    ]
    if len(borders) <= MAX_BORDERS:
        for border in borders:
            axes.axvline(border, color=FAINT, linewidth=0.8, linestyle=(0, (2, 2)))


def explain(axes: Axes, mark: str) -> None:
    """Add to the text below the axes what a mark means."""
    text = axes.get_xlabel()
    axes.set_xlabel(f"{text}; {mark}" if "\n" in text else f"{text}\n{mark}")
