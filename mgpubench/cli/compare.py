"""`mgpubench compare`: read results, judge them, print the table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mgpubench.cli.compare_options import (
    SidesCommand,
    baseline_option,
    margin_option,
    parse_accuracy,
    parse_percent,
    parse_price,
)
from mgpubench.cli.compare_plot import (
    OF_PICTURES,
    check_plot,
    draw_plot,
    kinds_to_draw,
    plot_options,
)
from mgpubench.cli.compare_sources import read, read_named
from mgpubench.cli.paths import PATH
from mgpubench.cli.streams import warn
from mgpubench.config.types import DEFAULT_OUT
from mgpubench.errors import BenchError, RequestRefused

if TYPE_CHECKING:
    from mgpubench.analysis.gate import Gate
    from mgpubench.analysis.row import Baseline, Row
    from mgpubench.analysis.stats import Interval
    from mgpubench.report.commands import Folders

UNDECIDED_EXIT_CODE = 3
"""Of a gate that could not be decided, with --strict."""


@click.command(cls=SidesCommand)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=PATH)
@baseline_option("MODE|MODE/OPTIONS|VARIANT|TRAINING")
@click.option("--before", multiple=True, type=PATH, metavar="PATH...", help="Older sessions.")
@click.option(
    "--after",
    multiple=True,
    type=PATH,
    metavar="PATH...",
    help="Newer sessions, to be compared with those of --before.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "markdown", "csv", "json"]),
    default="table",
    show_default=True,
    help="How to print the results on stdout.",
)
@margin_option
@click.option(
    "--fail-if-slower",
    "allowed",
    callback=parse_percent,
    metavar="PERCENT",
    help="Exit with 1 if anything is surely slower than the baseline, or than before, by more.",
)
@click.option(
    "--price-per-hour",
    type=float,
    callback=parse_price,
    metavar="PRICE",
    help="Price of one GPU for an hour: shows what a million samples cost.",
)
@click.option(
    "--price-per-kwh",
    type=float,
    callback=parse_price,
    metavar="PRICE",
    help="Price of the energy, which is added to it.",
)
@click.option(
    "--trainings",
    is_flag=True,
    help="Compare the trainings in PATH, even if it has runs too.",
)
@click.option(
    "--to-accuracy",
    "to_top1",
    callback=parse_accuracy,
    metavar="PERCENT",
    help="Of trainings: how long each took to this top-1 accuracy.",
)
@click.option(
    "--strict", is_flag=True, help="With --fail-if-slower: exit with 3 if that is undecided."
)
@plot_options
@click.pass_context
def compare(
    context: click.Context,
    /,
    paths: tuple[Path, ...],
    baseline: Baseline | None,
    before: tuple[Path, ...],
    after: tuple[Path, ...],
    **options: Any,
) -> None:
    """Compare the throughput of the modes on equal work.

    PATH is a session folder, a folder of sessions or a runs.csv. Without a PATH it is the newest
    session under results, with the newest sessions of the same work for modes that it lacks.

    PATH may also be the folder of a training, or a folder of trainings: then their epochs are shown
    side by side. They are not compared with runs.
    """
    from mgpubench.cli.compare_trainings import (
        OF_TRAININGS,
        PRICES,
        choose_trainings,
        compare_trainings,
        refuse_options,
        wanted_by,
    )

    check_options(context)
    if before or after:
        others = OF_TRAININGS | OF_PICTURES | PRICES
        refuse_options(context, others, "does not go with --before and --after")
        refuse_beside_sides(paths, baseline, before, after)
        intervals = compare_before_after(before, after, options)
    elif choose_trainings(paths, wanted_by(context, OF_TRAININGS)):
        compare_trainings(context, paths, baseline)
        return
    else:
        intervals = compare_rows(paths, baseline, options)
    if options["allowed"] is not None:
        context.exit(pass_gate(intervals, options["allowed"], strict=options["strict"]))


def check_options(context: click.Context) -> None:
    """Refuse what can be refused before anything is read."""
    if context.params["strict"] and context.params["allowed"] is None:
        raise RequestRefused("--strict has no meaning without --fail-if-slower")
    check_plot(context)


def refuse_beside_sides(
    paths: Sequence[Path],
    baseline: Baseline | None,
    before: Sequence[Path],
    after: Sequence[Path],
) -> None:
    """Refuse what does not go together with --before and --after."""
    if not before or not after:
        raise RequestRefused("--before and --after need each other")
    if paths:
        raise RequestRefused(f"{paths[0]} is neither after --before nor after --after")
    if baseline is not None:
        raise RequestRefused(
            "--baseline does not go with --before and --after",
            "The rows before are the baseline of the rows after.",
        )


def compare_rows(
    paths: Sequence[Path], baseline: Baseline | None, options: dict[str, Any]
) -> list[tuple[str, Interval | None]]:
    """Print the comparison of the rows of each group; return the intervals of their ratios."""
    from mgpubench.analysis.compare import compare as compare_runs
    from mgpubench.cli.compare_trainings import note_trainings
    from mgpubench.report.changes import gate_rows
    from mgpubench.report.plots.measured import Measured

    reading = read(paths)
    note_trainings(paths or [Path(DEFAULT_OUT)])
    rows = compare_runs(reading.records, baseline, options["margin"])
    rows = with_costs(rows, options["price_per_hour"], options["price_per_kwh"])
    measured = Measured(rows, reading.records, reading.folders)
    kinds = kinds_to_draw(measured, options["plot_kinds"]) if options["plot"] else ()
    print_rows(rows, options["output_format"], reading.folders)
    if options["plot"]:
        draw_plot(measured, kinds, options["plot"])
    return list(gate_rows(rows))


def with_costs(rows: list[Row], per_hour: float | None, per_kwh: float | None) -> list[Row]:
    """The rows with what a million samples cost, if there is a price."""
    from mgpubench.analysis.cost import Prices, add_costs

    if per_hour is None and per_kwh is None:
        return rows
    priced = add_costs(rows, Prices(per_hour=per_hour, per_kwh=per_kwh))
    if all(row.cost_per_million_samples is None for row in priced):
        warn(
            "no cost is known: rows of a CPU have none, and --price-per-kwh needs the energy, "
            "which NVML measures"
        )
    return priced


def compare_before_after(
    before: Sequence[Path], after: Sequence[Path], options: dict[str, Any]
) -> list[tuple[str, Interval | None]]:
    """Print the comparison of two sides; return the intervals of their ratios."""
    from mgpubench.analysis.before_after import compare_sides
    from mgpubench.report.changes import change_place, changes_to_json, describe_changes
    from mgpubench.report.console import open_console
    from mgpubench.report.tables import print_section, section_markdown

    result = compare_sides(read_named(before).records, read_named(after).records, options["margin"])
    if options["output_format"] == "csv":
        raise RequestRefused(
            "--format csv does not go with --before and --after", "Use --format json."
        )
    if options["output_format"] == "json":
        click.echo(changes_to_json(result))
    elif options["output_format"] == "markdown":
        click.echo(section_markdown(describe_changes(result)))
    else:
        print_section(describe_changes(result), open_console())
    compared: list[tuple[str, Interval | None]] = [
        (f"{change_place(row)} after against before", row.throughput.interval)
        for row in result.rows
        if row.is_judged
    ]
    # What no longer runs at all must not let a gate pass.
    return [*compared, *((f"{change_place(key)}, only before", None) for key in result.only_before)]


def pass_gate(intervals: list[tuple[str, Interval | None]], allowed: float, *, strict: bool) -> int:
    """Say on stderr whether the gate is passed, and return the exit code."""
    from mgpubench.analysis.gate import check_gate
    from mgpubench.report.changes import describe_gate

    gate: Gate = check_gate(intervals, allowed)
    sys.stdout.flush()
    for sentence in describe_gate(gate):
        click.echo(sentence, err=True)
    if gate.result == "tripped":
        return BenchError.exit_code
    return UNDECIDED_EXIT_CODE if strict and gate.result == "undecided" else 0


def print_rows(rows: Sequence[Row], output_format: str, folders: Folders) -> None:
    """Print the rows in a format."""
    if output_format == "table":
        from mgpubench.report.console import open_console
        from mgpubench.report.tables import print_comparison

        print_comparison(rows, open_console(), folders)
        return
    from mgpubench.report.export import to_csv, to_json
    from mgpubench.report.tables import comparison_markdown

    formats: dict[str, Callable[[], str]] = {
        "markdown": lambda: comparison_markdown(rows, folders),
        "csv": lambda: to_csv(rows),
        "json": lambda: f"{to_json(rows)}\n",
    }
    click.echo(formats[output_format](), nl=False)
