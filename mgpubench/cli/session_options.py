"""The options of commands that make a session of several rounds."""

from __future__ import annotations

import click

from mgpubench.cli.paths import PATH_TEXT
from mgpubench.cli.work_options import Decorator
from mgpubench.config.preset import STANDARD
from mgpubench.config.types import DEFAULT_OUT, DEFAULT_TIMEOUT_S

rounds_option: Decorator = click.option(
    "--rounds",
    type=int,
    help=f"Runs of every configuration.  [default: {STANDARD.rounds}]",
)

timeout_option: Decorator = click.option(
    "--timeout",
    "timeout_s",
    type=float,
    default=DEFAULT_TIMEOUT_S,
    show_default=True,
    help="Time limit for one run, in seconds.",
)

out_option: Decorator = click.option(
    "--out",
    type=PATH_TEXT,
    default=DEFAULT_OUT,
    show_default=True,
    help="Folder for the session folders.",
)

dry_run_option: Decorator = click.option(
    "--dry-run",
    is_flag=True,
    help="Print a plan and stop, without touching a device. Each session draws its own order.",
)
