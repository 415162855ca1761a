"""How hot the GPUs were in each run, in the same order as the picture of the runs above it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mgpubench.format import format_count
from mgpubench.report.plots.kind import Kind
from mgpubench.report.plots.labels import Label, put_labels
from mgpubench.report.plots.measured import Measured, Panel, Series
from mgpubench.report.plots.run_axis import (
    MIN_RUNS,
    draw_run_axis,
    runs_in_order,
    step_and_size,
    thinned,
)
from mgpubench.report.plots.style import RIGHT, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[int, float]
"""Place of a run in their order, from 1, and degrees Celsius."""


def _panels(measured: Measured) -> Sequence[Panel]:
    return [
        panel
        for panel in measured.panels
        if sum(run.gpu_temperature_max_c is not None for run in runs_in_order(panel)) >= MIN_RUNS
    ]


def _points(each: Series, places: Mapping[int, int]) -> list[Point]:
    return [
        (places[id(run)], run.gpu_temperature_max_c)
        for run in each.pool.runs
        if run.gpu_temperature_max_c is not None
    ]


def _degrees(point: Point) -> float:
    return point[1]


def _draw(axes: Axes, panel: Panel, _: Measured) -> None:
    ordered = runs_in_order(panel)
    places = {id(run): place for place, run in enumerate(ordered, 1)}
    shapes = looks([(each.row.mode, (each.kind, each.row.num_devices)) for each in panel.series])
    step, size = step_and_size(len(ordered))
    labels = []
    draw_run_axis(axes, ordered)
    for each, look in zip(panel.series, shapes, strict=True):
        if points := _points(each, places):
            x, y = zip(*thinned(points, step, _degrees), strict=True)
            axes.plot(x, y, look.marker, color=look.colour, markersize=size, linestyle="none")
            labels.append(Label(x[-1], y[-1], each.label, look, each.row.mode, each.devices))
    axes.margins(y=0.12)
    axes.set_ylabel("hottest GPU, \N{DEGREE SIGN}C")
    put_labels(axes, labels, room=RIGHT, at_points=False)


def _words(panel: Panel, _: Measured) -> Iterator[str]:
    places = {id(run): place for place, run in enumerate(runs_in_order(panel), 1)}
    for each in panel.series:
        if points := sorted(_points(each, places)):
            low, high = (end(map(_degrees, points)) for end in (min, max))
            yield (
                f"{each.place}: {format_count(len(points), 'run')} from {low:.0f} to {high:.0f} "
                f"\N{DEGREE SIGN}C, the last one at {points[-1][1]:.0f} \N{DEGREE SIGN}C"
            )


TEMPERATURE = Kind(
    name="temperature",
    title="Temperature of the hottest GPU in each run",
    needs=f"at least {MIN_RUNS} runs of equal work whose temperature is known",
    panels=_panels,
    height=lambda _: 1.6,
    draw=_draw,
    words=lambda panel, measured: list(_words(panel, measured)),
)
