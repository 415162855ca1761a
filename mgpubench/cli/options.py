"""Options and value types that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from mgpubench.config import MODES, Mode

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


def is_verbose(ctx: click.Context) -> bool:
    """True if --verbose was given to the command that runs."""
    return bool(ctx.meta.get(_VERBOSE))


class ModeList(click.ParamType[Any]):
    """A comma list of modes; `all` is no list, but the absence of a choice."""

    name = "modes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Mode, ...] | None:
        """`single,ddp` as a tuple without repetitions; None for `all`."""
        if value == "all":
            return None
        names = [name.strip() for name in str(value).split(",")]
        if unknown := [name for name in names if name not in MODES]:
            self.fail(f"{unknown[0]!r} is not a mode; modes: {', '.join(MODES)}, all", param, ctx)
        return tuple(mode for mode in MODES if mode in names)


class CountList(click.ParamType[Any]):
    """A comma list of whole numbers."""

    name = "counts"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """`1,2,4` as a tuple without repetitions, in the order given."""
        try:
            return tuple(dict.fromkeys(int(count) for count in str(value).split(",")))
        except ValueError:
            self.fail(f"{value!r} is not a comma list of numbers, such as 1,2,4", param, ctx)
