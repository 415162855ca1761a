"""Names beside the lines instead of a legend, which makes the eye jump."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mgpubench.format import format_count, plain, shorten
from mgpubench.report.plots.style import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

LINE_INCHES = 0.18
"""Between two labels, one above the other."""
MARKER_INCHES, TEXT_INCHES = 0.14, 0.26
"""From the axes to a label's marker and to its text."""


MAX_LABELS = 10
BESIDE_CHARACTERS = 24
"""Of a name beside its point."""
BESIDE_POINTS = (8, -5)
"""From a point to its name beside it, to the right and down, in points of 1/72 inch."""


@dataclass(frozen=True, slots=True)
class Label:
    """A name with the marker of its line, and the point that it is for."""

    x: float
    y: float
    text: str
    """The name, which is cut off if it has no room."""
    look: Look
    mode: str = ""
    tail: str = ""
    """What is never cut off: the number of devices, for example."""


def put_labels(axes: Axes, labels: Sequence[Label], *, room: float, at_points: bool = True) -> None:
    """Write the labels to the right of the axes: each near the height of its point, or as a list.

    A faint line leads from each point to its label, unless they are a list. A point further left
    has its label beside it, since a line across the picture would look like data. If there are too
    many, each mode has one label. `room` is the width that is left for them, in inches.
    """
    if not labels:
        return
    if len(labels) > MAX_LABELS:
        labels, at_points = _one_for_each_mode(labels), False
    if at_points:
        end = max(label.x for label in labels)
        for x in {label.x for label in labels} - {end}:
            _put_beside(axes, [label for label in labels if label.x == x])
        labels = [label for label in labels if label.x == end]
    _, height = _inches(axes)
    heights = _heights(axes, labels)
    if at_points:
        order = sorted(range(len(labels)), key=lambda place: heights[place])
    else:
        order, heights = list(reversed(range(len(labels)))), [1.0] * len(labels)
    spread = spread_out([heights[place] for place in order], LINE_INCHES / height, 1.0)
    for place, y in zip(order, spread, strict=True):
        _put(axes, labels[place], y, room, leads=at_points)


def _put_beside(axes: Axes, labels: Sequence[Label]) -> None:
    """Write the names of points that are at the same x to their right, one above the other."""
    gap = LINE_INCHES / _inches(axes)[1]
    by_height = sorted(zip(_heights(axes, labels), labels, strict=True), key=lambda pair: pair[0])
    spread = spread_out([height for height, _ in by_height], gap, 1.0)
    for y, (_, label) in zip(spread, by_height, strict=True):
        axes.annotate(
            shorten(label.text, BESIDE_CHARACTERS) + label.tail,
            xy=(label.x, y),
            xycoords=("data", "axes fraction"),
            xytext=BESIDE_POINTS,
            textcoords="offset points",
            va="top",
        )


def _one_for_each_mode(labels: Sequence[Label]) -> list[Label]:
    modes: dict[str, list[Label]] = {}
    for label in labels:
        modes.setdefault(label.mode, []).append(label)
    return [
        replace(group[0], text=plain(mode), tail=f", {format_count(len(group), 'row')}")
        for mode, group in modes.items()
    ]


def _put(axes: Axes, label: Label, y: float, room: float, *, leads: bool) -> None:
    """`y` and all places beside the axes are shares of their size; `room` is in inches."""
    width, _ = _inches(axes)
    marker_x = 1 + MARKER_INCHES / width
    look = label.look
    axes.plot(
        *([marker_x], [y], look.marker or "_"),
        color=look.colour,
        markersize=5,
        transform=axes.transAxes,
        clip_on=False,
    )
    written = axes.text(
        *(1 + TEXT_INCHES / width, y, ""),
        transform=axes.transAxes,
        va="center",
    )
    _fit(written, label, room - TEXT_INCHES)
    if leads:
        line = {"arrowstyle": "-", "color": look.colour, "alpha": 0.3, "linewidth": 0.7}
        axes.annotate(
            *("", (label.x, label.y), (marker_x, y)),
            textcoords="axes fraction",
            annotation_clip=False,
            arrowprops={**line, "shrinkA": 4, "shrinkB": 4},
        )


def _fit(written: Text, label: Label, inches: float) -> None:
    """Write a label, with as much of its name as there is room for."""
    figure = written.get_figure()
    assert figure is not None
    written.set_text(label.text + label.tail)
    shown = len(label.text)
    while shown and written.get_window_extent().width > inches * figure.dpi:
        shown -= 1
        written.set_text(shorten(label.text, shown) + label.tail)


def spread_out(heights: Sequence[float], gap: float, top: float) -> list[float]:
    """Heights, ascending, moved until each is `gap` above the one below it, and none above `top`.

    If there is too little room they go on below 0.
    """
    spread: list[float] = []
    for height in heights:
        spread.append(max(height, spread[-1] + gap) if spread else max(height, 0.0))
    limit = top
    for place in reversed(range(len(spread))):
        spread[place] = min(spread[place], limit)
        limit = spread[place] - gap
    return spread


def _inches(axes: Axes) -> tuple[float, float]:
    figure, place = axes.get_figure(), axes.get_window_extent()
    assert figure is not None
    return place.width / figure.dpi, place.height / figure.dpi


def _heights(axes: Axes, labels: Sequence[Label]) -> list[float]:
    """Where the points are, as shares of the height of the axes."""
    to_share = axes.transData + axes.transAxes.inverted()
    return [float(to_share.transform((label.x, label.y))[1]) for label in labels]
