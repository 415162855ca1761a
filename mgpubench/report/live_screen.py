"""The live screen: the terminal's alternate screen, drawn at most once a second.

The terminal is given back at the end, after a signal, and while the program is suspended (Ctrl-Z).
If it is killed, the sampler does it (`machine.sampler`). So the screen begins with a first sample.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mgpubench.format import plain
from mgpubench.report.console import open_console
from mgpubench.report.screen import ScreenState, draw
from mgpubench.results.telemetry import Sample

MIN_INTERVAL_S = 1.0
"""Twice a second would cost 1.8 % of a core."""

MAX_RATES = 500
MAX_MESSAGES = 100


def can_show_screen() -> bool:
    """True if stderr is a terminal that a screen can be drawn on."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class LiveScreen:
    """`live.LiveLines` with a whole screen in place of the bar."""

    has_bar = True

    def __init__(self) -> None:
        self.console: Console = open_console(stderr=True, soft_wrap=True, emoji=False)
        self._state = ScreenState()
        self._live: Live | None = None
        self._kept: list[str] = []
        """Lines that are printed when the screen is gone, since it leaves nothing behind."""
        self._began_s = time.monotonic()
        self._drawn_at_s = -MIN_INTERVAL_S
        self._last = (0, 0.0)
        """Steps, and the moment, of the last point of the rate."""
        self._samples_per_step = 1
        self._on_suspend: Any = None

    def update(self, **changes: Any) -> None:
        """Change what is shown: see `LiveLines.update`; `samples_per_step` of the present run."""
        state = self._state
        state.title = changes.get("description", state.title)
        state.total = changes.get("total", state.total)
        state.note = changes.get("rate", state.note)
        if "samples_per_step" in changes:
            self._samples_per_step = changes["samples_per_step"]
        if "completed" in changes:
            state.completed = changes["completed"]
        self._refresh()

    def show_devices(self, latest: Mapping[str, Sample]) -> None:
        """Show the last sample of each device."""
        self._state.devices = dict(latest)
        if self._live is None:
            self._enter()
            self._on_suspend = signal.signal(signal.SIGTSTP, self._suspend)
        self._refresh()

    def line(self, text: str) -> None:
        """Show a line below the devices, and print it at the end."""
        text = plain(text.rstrip())
        if self._live is None:
            self.console.print(text)
            return
        self._kept.append(text)
        self._state.messages = [*self._state.messages, text][-MAX_MESSAGES:]
        self._refresh()

    def close(self) -> None:
        """Give the terminal back, and print what was said meanwhile."""
        if self._live is not None:
            self._leave()
            signal.signal(signal.SIGTSTP, self._on_suspend)
        for text in self._kept:
            self.console.print(text)
        self._kept = []

    def _enter(self) -> None:
        self._live = Live(
            console=self.console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._live.start()
        self._drawn_at_s = -MIN_INTERVAL_S

    def _leave(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _suspend(self, signum: int, frame: FrameType | None) -> None:
        """Give the terminal back while the program is suspended."""
        self._leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # Here it goes on after `fg`.
        signal.signal(signal.SIGTSTP, self._suspend)
        self._enter()
        self._refresh()

    def _refresh(self) -> None:
        now_s = time.monotonic()
        if self._live is None or now_s - self._drawn_at_s < MIN_INTERVAL_S:
            return
        self._drawn_at_s = now_s
        self._state.elapsed_s = now_s - self._began_s
        self._add_rate(now_s)
        # Again each time: the window may have another size now.
        width, height = self.console.size
        lines = draw(self._state, max(1, width), max(1, height))
        # Without the line feed at the end, which would scroll the first line away.
        self._live.update(Text("\n".join(lines), no_wrap=True), refresh=True)

    def _add_rate(self, now_s: float) -> None:
        """Note the rate since the last point. There is none for the first one."""
        steps, at_s = self._last
        done = self._state.completed - steps
        if done >= 0 and 0 < at_s < now_s:
            rate = done * self._samples_per_step / (now_s - at_s)
            self._state.rates = [*self._state.rates, rate][-MAX_RATES:]
        self._last = (self._state.completed, now_s)
