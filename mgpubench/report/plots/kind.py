"""What a kind of picture is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mgpubench.report.plots.measured import Measured, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of picture: one panel for each group of equal work that it applies to."""

    name: str
    """As `--plot-kind` takes it."""
    title: str
    needs: str
    """What it needs, for a message if there is nothing to draw."""
    panels: Callable[[Measured], Sequence[Panel]]
    """The panels that it applies to."""
    height: Callable[[Panel], float]
    """Of the axes, in inches."""
    draw: Callable[[Axes, Panel, Measured], None]
    words: Callable[[Panel, Measured], Sequence[str]]
    """What a panel shows, in sentences, for those who cannot see it."""
