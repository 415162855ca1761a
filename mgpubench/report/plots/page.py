"""Pictures on a page: as a file in any format, or as SVG for a web page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING

from mgpubench.config.types import PLOT_KINDS
from mgpubench.format import format_count
from mgpubench.report.plots.kind import Kind
from mgpubench.report.plots.measured import Measured, Panel
from mgpubench.report.plots.ratios import RATIOS
from mgpubench.report.plots.runs import RUNS
from mgpubench.report.plots.sessions import SESSIONS
from mgpubench.report.plots.steps import STEPS
from mgpubench.report.plots.style import INK, RIGHT, SETTINGS
from mgpubench.report.plots.temperature import TEMPERATURE
from mgpubench.report.plots.throughput import THROUGHPUT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ALL = (THROUGHPUT, RATIOS, STEPS, RUNS, TEMPERATURE, SESSIONS)
_KINDS = {kind.name: kind for kind in _ALL}
"""In the order on a page."""


_UNDATED: dict[str, dict[str, str | None]] = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
    "png": {},
}
"""Without a date the same results make the same file."""

WIDTH = 9.8
LEFT = 2.3
"""Room for the names of rows. Inches, like all sizes here."""
ABOVE, BELOW = 0.72, 0.68
FOOT = 0.3

TITLE_CHARACTERS = 135
"""Of a line."""

BLACK = "#1a1a1a"


def apply(data: Measured, kinds: Sequence[str] = PLOT_KINDS) -> tuple[str, ...]:
    """Those of some kinds for which there is something to draw."""
    return tuple(name for name in kinds if _KINDS[name].panels(data))


def needs(kind: str) -> str:
    """What a kind of picture needs, in words."""
    return _KINDS[kind].needs


def draw(data: Measured, kinds: Sequence[str], file_format: str) -> bytes:
    """One page with all pictures of some kinds that apply, on white.

    `kinds` are in the order of `PLOT_KINDS`, and at least one of them applies. `file_format` is one
    of `PLOT_FORMATS`.
    """
    with _drawn(data, kinds) as figure:
        figure.set_facecolor("white")
        content = _saved(figure, file_format, _UNDATED[file_format])
    return content.replace(INK.encode(), BLACK.encode()) if file_format == "svg" else content


def svg_of(kind: str, data: Measured) -> str | None:
    """The pictures of one kind as an `<svg>` element for a page, or None if it does not apply.

    It has no background, and its text has the colour of the page's text. Its title and description
    say in words what it shows. Its ids begin with the kind, so that a page may have one of each.
    """
    if not apply(data, [kind]):
        return None
    with _drawn(data, [kind]) as figure:
        figure.patch.set_visible(False)
        for axes in figure.axes:
            axes.patch.set_visible(False)
        text = _saved(figure, "svg", _UNDATED["svg"]).decode()
    return _inline(text, kind, _words(_KINDS[kind], data))


@contextmanager
def _drawn(data: Measured, kinds: Sequence[str]) -> Iterator[Figure]:
    """A figure with the panels of some kinds, one below the other."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [(_KINDS[name], panel) for name in kinds for panel in _KINDS[name].panels(data)]
    inches = FOOT + sum(ABOVE + kind.height(panel) + BELOW for kind, panel in panels)
    with mpl.rc_context(SETTINGS), warnings.catch_warnings():
        # A character that the font lacks is a box, and no reason for a line on stderr.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(WIDTH, inches))
        FigureCanvasAgg(figure)
        top = inches
        for kind, panel in panels:
            height = kind.height(panel)
            bottom = top - ABOVE - height
            axes = figure.add_axes(
                (LEFT / WIDTH, bottom / inches, (WIDTH - LEFT - RIGHT) / WIDTH, height / inches)
            )
            kind.draw(axes, panel, data)
            _head(axes, kind, panel, height)
            top = bottom - BELOW
        figure.text(0.1 / WIDTH, 0.12 / inches, "  ".join(_notes(data, panels)), fontsize=8)
        yield figure


def _head(axes: Axes, kind: Kind, panel: Panel, height: float) -> None:
    """The title of a panel, and the work that it shows, at the left edge of the page."""
    left = -(LEFT - 0.1) / (WIDTH - LEFT - RIGHT)
    smoke = "CPU smoke test, no forecast for GPUs: " if panel.is_cpu else ""
    for text, above, style in (
        (kind.title, 0.62, {"fontweight": "bold", "fontsize": 10}),
        ("\n".join(wrap(smoke + panel.title, TITLE_CHARACTERS)[:2]), 0.44, {"fontsize": 8}),
    ):
        axes.text(left, 1 + above / height, text, transform=axes.transAxes, va="top", **style)


def _notes(data: Measured, panels: Sequence[tuple[Kind, Panel]]) -> Iterator[str]:
    if data.left_out:
        yield f"{format_count(data.left_out, 'more group')} of equal work not drawn."
    if any(kind is STEPS for kind, _ in panels) and data.step_times.unreadable:
        files = format_count(data.step_times.unreadable, "steps.csv")
        yield f"{files} cannot be read."


def _saved(figure: Figure, file_format: str, metadata: dict[str, str | None]) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=file_format, metadata=metadata)
    return buffer.getvalue()


def _words(kind: Kind, data: Measured) -> list[str]:
    return [sentence for panel in kind.panels(data) for sentence in kind.words(panel, data)]


_NAMES = re.compile(r'\b(id="|href="#|url\(#)')


def _inline(svg: str, kind: str, sentences: Sequence[str]) -> str:
    """An SVG file as an element of a page."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r"\s*<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = _NAMES.sub(lambda found: f"{found.group()}{kind}-", element)
    head, _, rest = element.partition(">")
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    words = "; ".join(sentences)
    return (
        f'{head} role="img" aria-labelledby="{kind}-title {kind}-desc">'
        f'<title id="{kind}-title">{escape(_KINDS[kind].title)}</title>'
        f'<desc id="{kind}-desc">{escape(words)}</desc>{rest}'
    ).replace(INK, "currentColor")
