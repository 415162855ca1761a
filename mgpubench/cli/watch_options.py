"""The options about what is watched and shown while `run` and `train` work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from mgpubench.cli.work_options import Decorator

if TYPE_CHECKING:
    from mgpubench.session.telemetry import Sampling

WATCHING: tuple[Decorator, ...] = (
    click.option(
        "--no-telemetry",
        is_flag=True,
        help="Do not sample GPUs, cores and memory once a second into telemetry.csv.",
    ),
)


@dataclass(frozen=True, slots=True)
class Watching:
    """What is watched while a command works."""

    no_telemetry: bool

    def sampling(self) -> Sampling:
        """What the session does about it."""
        from mgpubench.session.telemetry import Sampling

        return Sampling(is_wanted=not self.no_telemetry)
