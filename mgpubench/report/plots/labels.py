"""Names beside the lines instead of a legend, which makes the eye jump."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mgpubench.format import format_count, shorten
from mgpubench.report.plots.style import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE_INCHES = 0.18
"""Between two labels, one above the other."""
MARKER_INCHES, TEXT_INCHES = 0.14, 0.26
"""From the axes to a label's marker and to its text."""


MAX_LABELS = 10
CHARACTERS = 42
"""Of a label. More have no room."""


@dataclass(frozen=True, slots=True)
class Label:
    """A name with the marker of its line, and the point that it is for."""

    x: float
    y: float
    text: str
    look: Look
    mode: str = ""


def put_labels(axes: Axes, labels: Sequence[Label], *, at_points: bool = True) -> None:
    """Write the labels to the right of the axes: each near the height of its point, or as a list.

    A faint line leads from each point to its label, unless they are a list. If there are too many,
    each mode has one label.
    """
    if not labels:
        return
    if len(labels) > MAX_LABELS:
        labels, at_points = _one_for_each_mode(labels), False
    width, height = _inches(axes)
    heights = [float(axes.transAxes.inverted().transform(_pixel(axes, each))[1]) for each in labels]
    if at_points:
        order = sorted(range(len(labels)), key=lambda place: heights[place])
    else:
        order, heights = list(reversed(range(len(labels)))), [1.0] * len(labels)
    spread = spread_out([heights[place] for place in order], LINE_INCHES / height, 1.0)
    for place, y in zip(order, spread, strict=True):
        _put(axes, labels[place], y, width, leads=at_points)


def _one_for_each_mode(labels: Sequence[Label]) -> list[Label]:
    modes: dict[str, list[Label]] = {}
    for label in labels:
        modes.setdefault(label.mode, []).append(label)
    return [
        replace(group[0], text=f"{mode}, {format_count(len(group), 'row')}")
        for mode, group in modes.items()
    ]


def _put(axes: Axes, label: Label, y: float, width: float, *, leads: bool) -> None:
    """`y` and all places beside the axes are shares of their size."""
    marker_x = 1 + MARKER_INCHES / width
    look = label.look
    axes.plot(
        *([marker_x], [y], look.marker or "_"),
        color=look.colour,
        markersize=5,
        transform=axes.transAxes,
        clip_on=False,
    )
    axes.text(
        *(1 + TEXT_INCHES / width, y, shorten(label.text, CHARACTERS)),
        transform=axes.transAxes,
        color=look.colour,
        va="center",
    )
    if leads:
        line = {"arrowstyle": "-", "color": look.colour, "alpha": 0.3, "linewidth": 0.7}
        axes.annotate(
            *("", (label.x, label.y), (marker_x, y)),
            textcoords="axes fraction",
            annotation_clip=False,
            arrowprops={**line, "shrinkA": 4, "shrinkB": 4},
        )


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


def _pixel(axes: Axes, label: Label) -> tuple[float, float]:
    x, y = axes.transData.transform((label.x, label.y))
    return float(x), float(y)
