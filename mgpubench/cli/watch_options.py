"""The options about what is watched and shown while `run` and `train` work."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from mgpubench.cli.work_options import Decorator
from mgpubench.errors import RequestRefused

if TYPE_CHECKING:
    from mgpubench.report.live import Lines
    from mgpubench.session.telemetry import Sampling

WATCHING: tuple[Decorator, ...] = (
    click.option(
        "--live",
        is_flag=True,
        help="Show the run and the load, memory, temperature and power of each GPU on the whole "
        "screen.",
    ),
    click.option(
        "--no-telemetry",
        is_flag=True,
        help="Do not sample GPUs, cores and memory once a second into telemetry.csv.",
    ),
)


@dataclass(frozen=True, slots=True)
class Watching:
    """What is watched and shown while a command works."""

    live: bool
    no_telemetry: bool

    def __post_init__(self) -> None:
        """Refuse a screen without anything to show on it."""
        if self.live and self.no_telemetry:
            raise RequestRefused(
                "--live and --no-telemetry exclude each other",
                "The screen shows what the telemetry samples.",
            )

    def open(self) -> tuple[Sampling, Lines]:
        """How the session samples, and where lines and progress are shown."""
        from mgpubench.report.live import LiveLines
        from mgpubench.report.live_screen import LiveScreen, can_show_screen
        from mgpubench.session.telemetry import Sampling

        if self.live and can_show_screen():
            return Sampling(terminal=sys.stderr.fileno()), LiveScreen()
        if self.live:
            click.echo("note: --live needs a terminal on stderr; there are lines instead", err=True)
        return Sampling(is_wanted=not self.no_telemetry), LiveLines()
