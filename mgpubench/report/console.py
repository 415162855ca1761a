"""The terminal, as rich writes to it."""

from __future__ import annotations

from typing import Any

from rich.console import Console

USUAL_WIDTH, USUAL_HEIGHT = 80, 25


def open_console(**settings: Any) -> Console:
    """A console that shows text literally, and is wide enough to show something.

    Some terminals and batch systems set COLUMNS or LINES to 0, and rich then prints nothing at all.
    """
    console = Console(highlight=False, markup=False, **settings)
    if not console.width:
        console.width = USUAL_WIDTH
    if not console.height:
        console.height = USUAL_HEIGHT
    return console
