"""Throughput by number of devices, with intervals and the ideal line of `single`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from mgpubench.analysis.row import Row
from mgpubench.format import format_rate
from mgpubench.report.plots.kind import Kind
from mgpubench.report.plots.labels import Label, put_labels
from mgpubench.report.plots.measured import Measured, Panel, Series
from mgpubench.report.plots.style import INK, RIGHT, Look, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _panels(measured: Measured) -> Sequence[Panel]:
    return [panel for panel in measured.panels if len(_counts(panel)) > 1]


def _measured(panel: Panel) -> list[Series]:
    return [each for each in panel.series if each.row.throughput_samples_per_s is not None]


def _counts(panel: Panel) -> list[int]:
    return sorted({each.row.num_devices for each in _measured(panel)})


def _lines(panel: Panel) -> list[list[Series]]:
    """The rows that differ in the number of devices alone."""
    rows = sorted(_measured(panel), key=_line)
    lines = [list(members) for _, members in groupby(rows, key=_line)]
    first = {id(line): panel.series.index(line[0]) for line in lines}
    return sorted(lines, key=lambda line: first[id(line)])


def _line(each: Series) -> tuple[str, tuple[str, str, str]]:
    return each.row.mode, each.kind


def _draw(axes: Axes, panel: Panel, _: Measured) -> None:
    counts = _counts(panel)
    lines = _lines(panel)
    labels = []
    for line, look in zip(lines, looks([_line(line[0]) for line in lines]), strict=True):
        x = [each.row.num_devices for each in line]
        y = [rate(each.row) for each in line]
        axes.errorbar(
            x,
            y,
            yerr=_whiskers([each.row for each in line]),
            color=look.colour,
            marker=look.marker,
            markersize=5,
            linewidth=1.5,
            capsize=3,
        )
        labels.append(Label(x[-1], y[-1], line[0].label, look, line[0].row.mode))
    labels += _ideal(axes, panel, counts)
    if counts[-1] > 16 * counts[0]:
        axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts], minor=False)
    axes.set_ylim(0, 1.06 * axes.get_ylim()[1])
    axes.set_xlabel("devices")
    axes.set_ylabel("samples/s")
    put_labels(axes, labels, room=RIGHT)


def rate(row: Row) -> float:
    """The throughput of a row that has one, in samples/s."""
    assert row.throughput_samples_per_s is not None
    return row.throughput_samples_per_s


def _whiskers(rows: Sequence[Row]) -> list[list[float]]:
    """How far each interval goes down and up; 0 where there is none."""
    pairs = [(rate(row), row.throughput_ci or (rate(row), rate(row))) for row in rows]
    return [[mean - low for mean, (low, _) in pairs], [high - mean for mean, (_, high) in pairs]]


def _ideal(axes: Axes, panel: Panel, counts: Sequence[int]) -> Iterator[Label]:
    """A line for as many times `single` as there are devices; none where they share the cores."""
    singles = [each.row for each in _measured(panel) if each.row.mode == "single"]
    if panel.is_cpu or len(singles) != 1:
        return
    ideal = [rate(singles[0]) * count for count in counts]
    axes.plot(counts, ideal, color=INK, linestyle=(0, (4, 3)), linewidth=1)
    yield Label(counts[-1], ideal[-1], "single times devices", Look(INK, ""), "ideal")


def _words(panel: Panel) -> Iterator[str]:
    for each in _measured(panel):
        yield f"{each.place}: {format_rate(each.row.throughput_samples_per_s)} samples/s"


THROUGHPUT = Kind(
    name="throughput",
    title="Throughput by number of devices, with 95 % intervals",
    needs="runs on at least two numbers of devices",
    panels=_panels,
    height=lambda _: 2.6,
    draw=_draw,
    words=lambda panel, _: list(_words(panel)),
)
