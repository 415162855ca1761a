"""The ratio of each row to the baseline, with its interval, the margin and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from mgpubench.analysis.row import Versus
from mgpubench.format import format_confidence, format_interval, format_ratio, plain
from mgpubench.report.plots.kind import Kind
from mgpubench.report.plots.measured import Measured, Panel, Series
from mgpubench.report.plots.style import FAINT, INK, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME_CHARACTERS = 32
"""Of a line of a row's name."""
LINE_INCHES = 0.15

WIDE = 4.0
"""From the smallest to the largest ratio: beyond this the axis is logarithmic."""


def _panels(measured: Measured) -> Sequence[Panel]:
    return [panel for panel in measured.panels if _compared(panel)]


def _compared(panel: Panel) -> list[tuple[Series, Versus, float]]:
    return [
        (each, versus, versus.ratio)
        for each in panel.series
        if (versus := each.row.versus_baseline) is not None and versus.ratio is not None
    ]


def _draw(axes: Axes, panel: Panel, _: Measured) -> None:
    compared = _compared(panel)
    baseline, margin = compared[0][1].baseline, compared[0][1].margin
    axes.axvspan(1 / (1 + margin), 1 + margin, color=FAINT, alpha=0.3, linewidth=0)
    axes.axvline(1, color=INK, linewidth=1)
    shapes = looks([(each.row.mode, each.kind) for each, _, _ in compared])
    for place, ((_row, versus, ratio), look) in enumerate(zip(compared, shapes, strict=True)):
        low, high = versus.interval or (ratio, ratio)
        axes.plot([low, high], [place, place], color=look.colour, linewidth=2)
        filled = look.colour if versus.verdict in ("faster", "slower") else "none"
        axes.plot(
            [ratio], [place], look.marker, color=look.colour, markerfacecolor=filled, markersize=7
        )
        axes.annotate(
            verdict_in_words(versus),
            xy=(1.02, place),
            xycoords=("axes fraction", "data"),
            va="center",
        )
    axes.set_yticks(range(len(compared)), [_name(each) for each, _, _ in compared])
    axes.set_ylim(len(compared) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    _set_scale(axes, compared)
    axes.set_xlabel(
        f"throughput divided by that of {plain(baseline)}; band: within {margin * 100:g} %, which "
        "does not count"
    )


def _name(each: Series) -> str:
    """On one line, or else with the devices on a line of their own."""
    if len(each.place) <= NAME_CHARACTERS:
        return each.place
    return f"{fill(each.label, NAME_CHARACTERS, break_on_hyphens=False)}\n{each.devices.strip()}"


def _height(panel: Panel) -> float:
    """Rows are far enough from each other for the longest name."""
    compared = _compared(panel)
    lines = max(_name(each).count("\n") + 1 for each, _, _ in compared)
    return 0.45 + max(0.3, 0.06 + LINE_INCHES * lines) * len(compared)


def _set_scale(axes: Axes, compared: Sequence[tuple[Series, Versus, float]]) -> None:
    ends = [1.0]
    for _, versus, ratio in compared:
        ends += versus.interval or (ratio, ratio)
    low, high = min(ends), max(ends)
    if high / low > WIDE:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.15, high * 1.15)
        ticks = [tick for tick in _STEPS if low / 1.15 <= tick <= high * 1.15]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        return
    room = 0.08 * (high - low) or 0.05
    axes.set_xlim(low - room, high + room)


_STEPS = [base * 10.0**power for power in range(-4, 5) for base in (1, 2, 5)]


def verdict_in_words(versus: Versus) -> str:
    """The ratio and what may be said about it: `1.170, faster`."""
    if versus.comparison is None or versus.verdict is None:
        return f"{format_ratio(versus.ratio)}, no verdict"
    within = f" within {versus.margin * 100:g} %" if versus.verdict == "equivalent" else ""
    return f"{format_ratio(versus.ratio)}, {versus.verdict}{within}"


def _words(panel: Panel) -> Iterator[str]:
    for each, versus, _ in _compared(panel):
        comparison = versus.comparison
        interval = (
            f" ({format_confidence(comparison.confidence)} interval "
            f"{format_interval(comparison.interval)})"
            if comparison and comparison.interval and comparison.confidence
            else ""
        )
        yield f"{each.place} against {plain(versus.baseline)}: {verdict_in_words(versus)}{interval}"


RATIOS = Kind(
    name="ratios",
    title="Ratio to the baseline, with its interval; a filled marker is a sure difference",
    needs="a row that is divided by another one",
    panels=_panels,
    height=_height,
    draw=_draw,
    words=lambda panel, _: list(_words(panel)),
)
