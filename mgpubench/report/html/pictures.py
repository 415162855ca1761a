"""The pictures on the page, or the sentence that says how to get them."""

from __future__ import annotations

from collections.abc import Sequence

from mgpubench.analysis.row import Row
from mgpubench.config.types import PLOT_KINDS
from mgpubench.report.plots.measured import Measured
from mgpubench.report.plots.page import svg_of
from mgpubench.results.merge import Reading

NO_MATPLOTLIB = (
    "This page has no pictures, because matplotlib was not installed where it was made: "
    "pip install matplotlib."
)
NOTHING_TO_DRAW = "There is not enough here for a picture."


def pictures_of(rows: Sequence[Row], reading: Reading) -> tuple[list[str], str]:
    """The SVG of each kind of picture that applies, and a sentence if there is none."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return [], NO_MATPLOTLIB
    measured = Measured(rows, reading.records, reading.folders)
    drawn = [svg for kind in PLOT_KINDS if (svg := svg_of(kind, measured))]
    return drawn, "" if drawn else NOTHING_TO_DRAW
