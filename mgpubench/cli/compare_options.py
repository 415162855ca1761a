"""How `mgpubench compare` reads its options."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from mgpubench.cli.work_options import Decorator
from mgpubench.config.types import DEFAULT_MARGIN

if TYPE_CHECKING:
    from mgpubench.analysis.row import Baseline

SIDES = ("--before", "--after")


class SidesCommand(click.Command):
    """A command whose --before and --after take all paths that follow: `--before A B`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each of its paths, as Click wants it."""
        repeated: list[str] = []
        side = bare = ""
        for argument in args:
            if argument.startswith("-"):
                refuse_bare_side(ctx, bare)
                side = bare = argument if argument in SIDES else ""
                if not side:
                    repeated.append(argument)
            else:
                repeated += [side, argument] if side else [argument]
                bare = ""
        refuse_bare_side(ctx, bare)
        return super().parse_args(ctx, repeated)


def refuse_bare_side(context: click.Context, side: str) -> None:
    """Refuse --before or --after without a path: is a shell variable unset?"""
    if side:
        raise click.BadOptionUsage(side, f"Option {side!r} requires an argument.", context)


def parse_margin(context: click.Context, parameter: click.Parameter, text: str) -> float:
    """A percentage as a share; `2` and `2%` are 0.02."""
    share = parse_percent(context, parameter, text)
    assert share is not None  # it has a default
    return share


def parse_accuracy(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> float | None:
    """A percentage above 0 and up to 100 as a share of one."""
    return 1.0 if text in ("100", "100%") else parse_percent(context, parameter, text)


def parse_percent(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> float | None:
    """A percentage above 0 and below 100 as a share of one."""
    if text is None:
        return None
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a percentage.", context, parameter) from None
    if not 0 < percent < 100:  # NaN fails this too
        raise click.BadParameter(f"{text} is not above 0 and below 100.", context, parameter)
    return percent / 100


def parse_price(
    context: click.Context, parameter: click.Parameter, price: float | None
) -> float | None:
    """A price above 0, in any currency."""
    if price is not None and not 0 < price < math.inf:  # NaN fails this too
        raise click.BadParameter(f"{price:g} is not a price above 0.", context, parameter)
    return price


def parse_baseline_option(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> Baseline | None:
    """A baseline by its name."""
    from mgpubench.analysis.row import parse_baseline

    if text is not None and not text:
        raise click.BadParameter("it is empty.", context, parameter)
    return None if text is None else parse_baseline(text)


def baseline_option(metavar: str) -> Decorator:
    """What a comparison divides by."""
    return click.option(
        "--baseline",
        callback=parse_baseline_option,
        metavar=metavar,
        help="What to divide by.  [default: the first variant, else single, else dp, else ddp]",
    )


margin_option: Decorator = click.option(
    "--margin",
    default=f"{DEFAULT_MARGIN * 100:g}",
    show_default=True,
    callback=parse_margin,
    metavar="PERCENT",
    help="Difference that counts: below it, modes are equivalent.",
)
