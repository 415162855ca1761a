"""How long the steps took: for each row the share of steps up to each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpubench.format import format_count, format_milliseconds
from mgpubench.report.plots.kind import Kind
from mgpubench.report.plots.labels import Label, put_labels
from mgpubench.report.plots.measured import Measured, Panel, Series
from mgpubench.report.plots.style import RIGHT, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONG_TAIL = 5.0
"""Longest step by the shortest median: beyond this the axis is logarithmic."""

MAX_POINTS = 400
"""Of a curve. More cannot be seen, and make the file large."""


def _panels(measured: Measured) -> Sequence[Panel]:
    known = measured.step_times.by_run
    return [
        panel
        for panel in measured.panels
        if any(run.run_id in known for each in panel.series for run in each.pool.ok_runs)
    ]


def _timed(panel: Panel, measured: Measured) -> list[tuple[Series, list[float]]]:
    """The rows whose steps are known, with their step times in ms, ascending."""
    times = measured.step_times
    found = [
        (
            each,
            sorted(1e3 * seconds for seconds in times.of(run.run_id for run in each.pool.ok_runs)),
        )
        for each in panel.series
    ]
    return [(each, steps) for each, steps in found if steps]


def _draw(axes: Axes, panel: Panel, measured: Measured) -> None:
    timed = _timed(panel, measured)
    shapes = looks([(each.row.mode, (each.kind, each.row.num_devices)) for each, _ in timed])
    labels = []
    for place, ((each, steps), look) in enumerate(zip(timed, shapes, strict=True)):
        x, y = curve(steps, MAX_POINTS)
        every = max(1, len(x) // 6)
        axes.plot(
            x,
            y,
            color=look.colour,
            marker=look.marker,
            markersize=4,
            markevery=(place % every, every),
            linewidth=1.4,
        )
        tail = f"{each.devices}, {format_milliseconds(middle(steps) / 1e3)} ms"
        labels.append(Label(x[-1], y[-1], each.label, look, each.row.mode, tail))
    _set_scale(axes, [steps for _, steps in timed])
    axes.set_ylim(0, 103)
    axes.set_xlabel("step time, ms; the median beside the name")
    axes.set_ylabel("share of steps, %")
    put_labels(axes, labels, room=RIGHT, at_points=False)


def curve(values: Sequence[float], most: int) -> tuple[list[float], list[float]]:
    """The empirical distribution: values, ascending, and the percentage of values up to each.

    At most `most` points, evenly spread over the ranks; the first and the last value are among
    them.
    """
    count = len(values)
    if count <= most:
        places = list(range(count))
    else:
        places = sorted({round(number * (count - 1) / (most - 1)) for number in range(most)})
    return [values[place] for place in places], [100 * (place + 1) / count for place in places]


def middle(values: Sequence[float]) -> float:
    """The median of values in ascending order."""
    half, is_odd = divmod(len(values), 2)
    return values[half] if is_odd else (values[half - 1] + values[half]) / 2


def _set_scale(axes: Axes, times: Sequence[Sequence[float]]) -> None:
    if max(steps[-1] for steps in times) <= LONG_TAIL * min(map(middle, times)):
        return
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda *_: "")


def _words(panel: Panel, measured: Measured) -> list[str]:
    return [
        f"{each.place}: median {format_milliseconds(middle(steps) / 1e3)} ms, longest "
        f"{format_milliseconds(steps[-1] / 1e3)} ms, {format_count(len(steps), 'step')}"
        for each, steps in _timed(panel, measured)
    ]


STEPS = Kind(
    name="steps",
    title="Step times: share of steps that took at most so long",
    needs="steps.csv of the sessions",
    panels=_panels,
    height=lambda _: 2.4,
    draw=_draw,
    words=_words,
)
