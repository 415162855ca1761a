"""How all pictures look: each mode has one colour and one marker, on white, dark and grey."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from mgpubench.config.types import MODES

INK = "#010203"
"""Of text and axes. On a page it becomes the colour of the page's own text."""
FAINT = "#8a8a8a"
"""Of grid lines and bands, on white and on black."""
RIGHT = 3.1
"""Room for labels to the right of the axes, in inches."""

# Text is never coloured: on a page it must have a contrast of 4.5, and these have 3.
# Okabe and Ito's colours, which people with any colour vision tell apart, but for the yellow one,
# which is too light on white. All have a contrast of 3 or more with white and with near-black.
_BLUE, _ORANGE, _GREEN, _PURPLE, _OCHRE, _GREY = (
    *("#0a7bbf", "#d55e00", "#009268", "#b9629a", "#a07800", "#777777"),
)
_BY_MODE: dict[str, str] = {
    "single": _GREY,
    "dp": _ORANGE,
    "ddp": _BLUE,
    "fsdp": _GREEN,
    "deepspeed": _PURPLE,
}
_SERIES = (_BLUE, _ORANGE, _GREEN, _PURPLE, _OCHRE, _GREY)
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">", "*")
_STRIDE = 3
"""From one marker of a mode to its next one: prime to the number of markers, so all take part."""
_MARKER_BY_MODE: dict[str, str] = dict(zip(MODES, _MARKERS, strict=False))

SETTINGS: Any = {
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.alpha": 0.35,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "pdf.fonttype": 42,  # text in a PDF can be searched
    "savefig.dpi": 150,
    "svg.fonttype": "none",  # text stays text, which a reader can search and hear
    "svg.hashsalt": "mgpubench",  # the same picture is the same file
    "text.color": INK,
    "text.parse_math": False,  # a `$` in a name is only a `$`
    "xtick.color": INK,
    "ytick.color": INK,
}
"""matplotlib's rcParams for every picture."""


@dataclass(frozen=True, slots=True)
class Look:
    """How one series is drawn."""

    colour: str
    marker: str


def looks(series: Sequence[tuple[str, Hashable]]) -> list[Look]:
    """A look for each series, given by its mode and by what tells it from others of that mode.

    Several modes have a colour each, and their options or variants differ by the marker. Within one
    mode the colours differ too.
    """
    if len({mode for mode, _ in series}) == 1:
        names = list(dict.fromkeys(name for _, name in series))
        if len(names) == 1:
            return [_look_of_mode(series[0][0], 0)] * len(series)
        places = [names.index(name) for _, name in series]
        return [
            Look(_SERIES[place % len(_SERIES)], _MARKERS[place % len(_MARKERS)]) for place in places
        ]
    known: dict[str, list[Hashable]] = {}
    found = []
    for mode, name in series:
        names = known.setdefault(mode, [])
        if name not in names:
            names.append(name)
        found.append(_look_of_mode(mode, names.index(name)))
    return found


def _look_of_mode(mode: str, place: int) -> Look:
    """`place` counts the options or variants of the mode, from 0."""
    first = _MARKERS.index(_MARKER_BY_MODE.get(mode, "o"))
    marker = _MARKERS[(first + place * _STRIDE) % len(_MARKERS)]
    return Look(_BY_MODE.get(mode, _OCHRE), marker)
