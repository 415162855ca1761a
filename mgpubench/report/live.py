"""What a person sees on stderr meanwhile: a bar on a terminal, and plain lines in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mgpubench.format import plain
from mgpubench.report.console import open_console
from mgpubench.results.telemetry import Sample

MIN_BAR_WIDTH = 80
"""In a narrower terminal the bar would truncate its numbers, so there are plain lines."""


class Lines(Protocol):
    """Where lines and progress are shown."""

    console: Console

    @property
    def has_bar(self) -> bool:
        """True if progress is drawn, so that no line is needed about it."""

    def update(self, **changes: Any) -> None:
        """Change what is drawn: `completed`, `total`, `description`, `rate`."""

    def show_devices(self, latest: Mapping[str, Sample]) -> None:
        """Show the last sample of each device, if there is room for it."""

    def line(self, text: str) -> None:
        """Show a line."""

    def close(self) -> None:
        """Remove what is drawn."""


class LiveLines:
    """Lines on stderr, with a bar below them on a terminal."""

    def __init__(self) -> None:
        self.console = open_console(stderr=True, soft_wrap=True, emoji=False)
        # The file itself is asked, since FORCE_COLOR makes rich treat a pipe as a terminal.
        live = (
            sys.stderr.isatty()
            and os.environ.get("TERM") != "dumb"
            and self.console.width >= MIN_BAR_WIDTH
        )
        self._bar = _make_bar(self.console) if live else None
        if self._bar is not None:
            self._task = self._bar.add_task("loading torch", total=None, rate="")
            self._bar.start()

    @property
    def has_bar(self) -> bool:
        """False in a pipe, and in a terminal without room for a bar."""
        return self._bar is not None

    def update(self, **changes: Any) -> None:
        """Change the bar, if there is one: `completed`, `total`, `description`, `rate`."""
        if self._bar is not None:
            self._bar.update(self._task, **changes)

    def show_devices(self, latest: Mapping[str, Sample]) -> None:
        """Nothing: a bar has no room for devices."""

    def line(self, text: str) -> None:
        """Print a line."""
        self.console.print(plain(text.rstrip()))

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()


def _make_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        refresh_per_second=2,  # more would take time from the training
    )
