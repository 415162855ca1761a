"""The options of `mgpubench run` about its rounds and its session."""

from __future__ import annotations

import click

from mgpubench.cli.node_options import NODE_OPTIONS
from mgpubench.cli.options import parse_duration
from mgpubench.cli.paths import PATH
from mgpubench.cli.session_options import (
    dry_run_option,
    out_option,
    rounds_option,
    timeout_option,
)
from mgpubench.cli.work_options import Decorator
from mgpubench.config.types import DEFAULT_MAX_ROUNDS

WITH_RESUME = {
    *("resume", "resume_only_missing", "rounds", "until", "max_rounds", "duration_s"),
    "timeout_s",
    *("fail_fast", "dry_run", "verbose", "no_telemetry", "live", *NODE_OPTIONS),
}
"""Parameters that may stand beside --resume."""

ROUNDS: tuple[Decorator, ...] = (
    rounds_option,
    click.option(
        "--until",
        default="",
        metavar="decided|WIDTH",
        help="Add rounds until every comparison is decided, or known to a half-width such as 2%.",
    ),
    click.option(
        "--max-rounds",
        type=int,
        help=f"With --until: at most this many rounds.  [default: {DEFAULT_MAX_ROUNDS}]",
    ),
    click.option(
        "--duration",
        "duration_s",
        callback=parse_duration,
        metavar="TIME",
        help="Repeat rounds until this time is up, such as 90s, 30m or 8h, and say whether the "
        "speed was steady.",
    ),
    click.option(
        "--variant",
        "variants",
        multiple=True,
        metavar='"NAME: OPTIONS"',
        help="Compare several settings: options of this command that change the work, and --env "
        "NAME=VALUE. Give two or more.",
    ),
    click.option(
        "--aa",
        is_flag=True,
        help="Run everything twice, as two equal variants: shows what differs by chance.",
    ),
    click.option(
        "--cool-down",
        "cool_down_s",
        type=float,
        default=0.0,
        show_default=True,
        help="Pause between two runs, in seconds.",
    ),
    click.option(
        "--seed",
        type=int,
        help="Seed of weights and data and, if given, of the order of the runs.  [default: 0]",
    ),
    timeout_option,
    out_option,
)

SESSION: tuple[Decorator, ...] = (
    click.option("--fail-fast", is_flag=True, help="End the session at the first run that fails."),
    click.option(
        "--resume",
        metavar="SESSION",
        type=PATH,
        help="Repeat the incomplete rounds of a session, with its own options. --rounds and "
        "--until add rounds, and --timeout may be different.",
    ),
    click.option(
        "--resume-only-missing",
        is_flag=True,
        help="With --resume: make only the missing and failed runs. They are not paired.",
    ),
    click.option(
        "--show-shards",
        is_flag=True,
        help="Print what every replica and rank gets of one batch, and stop. The batch may leave "
        "a rest.",
    ),
    dry_run_option,
)
