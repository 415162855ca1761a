"""Options and value types that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from mgpubench.config.types import MODES, Mode
from mgpubench.errors import RequestRefused

_VERBOSE = "mgpubench.verbose"


def _remember(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    ctx.meta[_VERBOSE] = value


verbose_option: Callable[[Any], Any] = click.option(
    "--verbose",
    "-v",
    is_flag=True,
    expose_value=False,
    callback=_remember,
    help="Show tracebacks and the workers' own output after an error.",
)


text_or_json_option: Callable[[Any], Any] = click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print on stdout.",
)


def is_given(ctx: click.Context, name: str) -> bool:
    """True if an option is on the command line."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def is_verbose(ctx: click.Context) -> bool:
    """True if --verbose was given."""
    return bool(ctx.meta.get(_VERBOSE))


def parse_modes(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[Mode, ...] | None:
    """`single,ddp` as a tuple without repetitions; None for `all`, which names no mode."""
    if value is None or value == "all":
        return None
    names = [name.strip() for name in value.split(",")]
    if unknown := [name for name in names if name not in MODES]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(MODES)}, all.")
    return tuple(mode for mode in MODES if mode in names)


def refuse_all_modes(ctx: click.Context, what: str) -> None:
    """Refuse `--mode all` for something that has one mode.

    Raises:
        RequestRefused: if it was given.
    """
    if is_given(ctx, "modes") and ctx.params["modes"] is None:
        raise RequestRefused(
            f"--mode is all, and {what} has one mode",
            "Choose one. To compare the speed of modes: mgpubench run.",
        )


def parse_counts(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[int, ...] | None:
    """`1,2,4` as a tuple without repetitions, in the order given."""
    if value is None:
        return None
    counts = [count.strip() for count in value.split(",")]
    # int() alone would take 1_0 for 10.
    if not all(count.removeprefix("-").isdecimal() for count in counts):
        raise click.BadParameter(f"{value!r} is not a list of numbers such as 1,2,4.")
    return tuple(dict.fromkeys(map(int, counts)))


SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_duration(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> float | None:
    """`90s`, `1.5h` or `600` as seconds."""
    if value is None:
        return None
    number, unit = (value[:-1], value[-1:]) if value[-1:] in SECONDS else (value, "s")
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", number):
        raise click.BadParameter(f"{value!r} is not a time such as 90s, 30m or 8h.")
    return float(number) * SECONDS[unit]
