"""`mgpubench compare`: read results, judge them, print the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mgpubench.config.types import DEFAULT_MARGIN, DEFAULT_OUT, MODES

if TYPE_CHECKING:
    from mgpubench.analysis.compare import Row
    from mgpubench.config.types import Mode
    from mgpubench.results.schema import RunRecord


def check_margin(context: click.Context, parameter: click.Parameter, percent: float) -> float:
    """Refuse a margin that is not a percentage. NaN fails this comparison too."""
    if not 0 < percent < 100:
        raise click.BadParameter(f"{percent:g} is not above 0 and below 100.", context, parameter)
    return percent


@click.command(short_help="Is one mode faster than another?")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@click.option(
    "--baseline",
    type=click.Choice(MODES),
    help="Mode to divide by.  [default: single if there is one, else dp]",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "markdown", "csv", "json"]),
    default="table",
    show_default=True,
    help="How to print the results on stdout.",
)
@click.option(
    "--margin",
    "margin_percent",
    type=float,
    default=DEFAULT_MARGIN * 100,
    show_default=True,
    callback=check_margin,
    help="Difference in percent that counts. Within it modes are equivalent.",
)
def compare(
    paths: tuple[Path, ...],
    baseline: Mode | None,
    output_format: str,
    margin_percent: float,
) -> None:
    """Compare the throughput of single, dp and ddp on equal work.

    PATH is a session folder, a folder of sessions or a runs.csv. Without a PATH it is the newest
    session under results.
    """
    from mgpubench.analysis.compare import compare as compare_runs

    rows = compare_runs(_read(paths), baseline, margin_percent / 100)
    _print(rows, output_format)


def _read(paths: Sequence[Path]) -> list[RunRecord]:
    from mgpubench.errors import NoUsableResults
    from mgpubench.format import format_count
    from mgpubench.results.read import newest_session, read_sessions

    if not paths:
        folder, left_out = newest_session(Path(DEFAULT_OUT))
        paths = [folder]
        click.echo(f"comparing {folder}, the newest session; {_others(left_out)}", err=True)
    reading = read_sessions(paths)
    for warning in reading.warnings:
        click.echo(f"warning: {warning}", err=True)
    sessions = {record.session_id for record in reading.records if record.session_id}
    if len(sessions) > 1:
        click.echo(f"{len(sessions)} sessions: their runs of equal work are pooled", err=True)
    if not any(record.is_ok for record in reading.records):
        runs = format_count(len(reading.records), "run")
        raise NoUsableResults(
            f"no results in {', '.join(map(str, paths))}: {runs}, and none succeeded",
            "See the column `error` in runs.csv for the reason.",
        )
    return reading.records


def _others(count: int) -> str:
    if not count:
        return "there is no other"
    return f"{count} more left out (all of them: mgpubench compare {DEFAULT_OUT})"


def _print(rows: Sequence[Row], output_format: str) -> None:
    if output_format == "table":
        from rich.console import Console

        from mgpubench.report.tables import print_comparison

        print_comparison(rows, Console())
    elif output_format == "markdown":
        from mgpubench.report.tables import comparison_markdown

        click.echo(comparison_markdown(rows), nl=False)
    elif output_format == "csv":
        from mgpubench.report.export import to_csv

        click.echo(to_csv(rows), nl=False)
    else:
        from mgpubench.report.export import to_json

        click.echo(to_json(rows))
