"""The runs in the order in which they were made: drift and disturbance are seen here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mgpubench.analysis import stats
from mgpubench.analysis.findings.catalogue import has_table_note
from mgpubench.format import format_count, format_percent, plain
from mgpubench.report.plots.kind import Kind
from mgpubench.report.plots.labels import Label, put_labels
from mgpubench.report.plots.measured import Measured, Panel, Series
from mgpubench.report.plots.run_axis import (
    MIN_RUNS,
    draw_run_axis,
    explain,
    runs_in_order,
    step_and_size,
    thinned,
)
from mgpubench.report.plots.style import INK, RIGHT, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_NUMBERS = 40
"""So many runs with findings carry the number of their finding."""


@dataclass(frozen=True, slots=True)
class Point:
    """A run that succeeded."""

    place: int
    """In the order of the runs, from 1."""
    percent: float
    """Throughput against the mean of its row."""
    codes: tuple[str, ...]
    """Findings that not every row of this kind has."""


def _panels(measured: Measured) -> Sequence[Panel]:
    return [panel for panel in measured.panels if len(runs_in_order(panel)) >= MIN_RUNS]


def _draw(axes: Axes, panel: Panel, _: Measured) -> None:
    ordered = runs_in_order(panel)
    places = {id(run): place for place, run in enumerate(ordered, 1)}
    shapes = looks([(each.row.mode, (each.kind, each.row.num_devices)) for each in panel.series])
    step, size = step_and_size(len(ordered))
    labels, marked = [], []
    draw_run_axis(axes, ordered)
    axes.axhline(0, color=INK, linewidth=0.8)
    for each, look in zip(panel.series, shapes, strict=True):
        points = _points(each, places)
        if not points:
            continue
        shown = thinned(points, step, _percent)
        x, y = [point.place for point in shown], [point.percent for point in shown]
        axes.plot(x, y, look.marker, color=look.colour, markersize=size, linestyle="none")
        labels.append(Label(x[-1], y[-1], each.label, look, each.row.mode, each.devices))
        marked += [point for point in shown if point.codes]
    _mark_findings(axes, marked)
    _mark_failures(axes, [places[id(run)] for run in ordered if not run.is_ok])
    axes.margins(y=0.12)
    axes.set_ylabel("samples/s against\nthe row's mean, %")
    put_labels(axes, labels, room=RIGHT, at_points=False)


def _points(each: Series, places: Mapping[int, int]) -> list[Point]:
    runs = each.pool.ok_runs
    if not runs:
        return []
    mean = stats.geometric_mean(each.pool.throughputs)
    return [
        Point(
            places[id(run)],
            100 * (throughput / mean - 1),
            tuple(code for code in run.finding_codes if not has_table_note(code)),
        )
        for run, throughput in zip(runs, each.pool.throughputs, strict=True)
    ]


def _percent(point: Point) -> float:
    return point.percent


def _mark_findings(axes: Axes, marked: Sequence[Point]) -> None:
    """A ring around each, with the number of its finding; the numbers are explained below."""
    if not marked:
        return
    x, y = [point.place for point in marked], [point.percent for point in marked]
    few = len(marked) <= MAX_NUMBERS
    size, alpha = (9.0, 1.0) if few else (5.0, 0.4)
    axes.plot(x, y, "o", color=INK, markerfacecolor="none", markersize=size, alpha=alpha)
    codes = _numbered(marked)
    if few:
        for point in marked:
            text = ",".join(sorted(str(codes[code]) for code in point.codes))
            axes.annotate(
                text, (point.place, point.percent), (0, 6), textcoords="offset points", ha="center"
            )
    explained = ", ".join(f"{number} {plain(code)}" for code, number in codes.items())
    explain(axes, f"ring: a finding ({explained})")


def _numbered(marked: Sequence[Point]) -> dict[str, int]:
    names = sorted({code for point in marked for code in point.codes})
    return {code: number for number, code in enumerate(names, 1)}


def _mark_failures(axes: Axes, places: Sequence[int]) -> None:
    if not places:
        return
    axes.plot(
        *(places, [0.03] * len(places), "x"),
        color=INK,
        markersize=6,
        transform=axes.get_xaxis_transform(),
    )
    explain(axes, "cross: failed or interrupted")


def _words(panel: Panel, _: Measured) -> Iterator[str]:
    ordered = runs_in_order(panel)
    places = {id(run): place for place, run in enumerate(ordered, 1)}
    for each in panel.series:
        if points := _points(each, places):
            low, high = (
                format_percent(end(points, key=_percent).percent / 100) for end in (min, max)
            )
            runs = format_count(len(points), "run")
            yield f"{each.place}: {runs} from {low} to {high} of their mean"


RUNS = Kind(
    name="runs",
    title="Runs in their order; dotted lines lie between sessions",
    needs=f"at least {MIN_RUNS} runs of equal work",
    panels=_panels,
    height=lambda _: 2.2,
    draw=_draw,
    words=lambda panel, measured: list(_words(panel, measured)),
)
