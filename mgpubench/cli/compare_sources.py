"""Which results `mgpubench compare` reads, and what it says about those that it leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mgpubench.cli.streams import warn
from mgpubench.config.types import DEFAULT_MARGIN, DEFAULT_OUT
from mgpubench.format import plain, shown_path

if TYPE_CHECKING:
    from mgpubench.analysis.selection import Selection
    from mgpubench.results.merge import Reading


def read(paths: Sequence[Path]) -> Reading:
    """The runs of some sessions, or of those that answer best if none is named."""
    from mgpubench.analysis.selection import select_sessions

    if paths:
        return read_named(paths)
    root = Path(DEFAULT_OUT)
    for warning in from_future(root):
        warn(warning)
    selection = select_sessions(root)
    (newest, _), *others = selection.modes.items()
    added = "".join(
        f", with {', '.join(sorted(modes))} of {shown_path(path)}" for path, modes in others
    )
    others_left = _left_out(selection.left_out)
    click.echo(
        f"comparing {shown_path(newest)}, the newest session{added}; {others_left}", err=True
    )
    reading = checked(selection.read(), [newest])
    for note in unlike(selection, reading):
        click.echo(note, err=True)
    return reading


def unlike(selection: Selection, reading: Reading) -> Iterator[str]:
    """What keeps other sessions out of the table, and the command that makes all work equal."""
    from mgpubench.analysis.compare import compare as compare_runs
    from mgpubench.report.commands import command_to_run
    from mgpubench.report.sections import HIDDEN_GPUS

    wanted = [mode for other in selection.others for mode in other.modes]
    rows = compare_runs(reading.records, None, DEFAULT_MARGIN) if wanted else []
    for other in selection.others:
        differences = "; ".join(
            f"{name} is {theirs} there and {ours} here"
            for name, (theirs, ours) in other.differences.items()
        )
        yield plain(
            f"note: {shown_path(other.folder)} has {', '.join(other.modes)} too, for other work: "
            f"{differences}; to get one table: {command_to_run(rows, wanted)}"
            + (f"; {HIDDEN_GPUS}" if "machine" in other.differences else "")
        )


def from_future(root: Path) -> Iterator[str]:
    """A warning about sessions that would be the newest for ever, if their names were right."""
    from mgpubench.results.read import sessions_from_future

    if found := sessions_from_future(root):
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        yield (
            f"{shown_path(found[0])}{more} is dated in the future: is the clock of this "
            "machine wrong, or was it? It does not count as the newest"
        )


def read_named(paths: Sequence[Path]) -> Reading:
    """The runs of the named sessions."""
    from mgpubench.results.read import read_sessions

    return checked(read_sessions(paths), paths)


def checked(reading: Reading, paths: Sequence[Path]) -> Reading:
    """Print the warnings about files, and refuse results without a run that succeeded."""
    from mgpubench.errors import NoUsableResults
    from mgpubench.format import format_count

    for warning in reading.warnings:
        warn(warning)
    if not any(record.is_ok for record in reading.records):
        runs = format_count(len(reading.records), "run")
        raise NoUsableResults(
            f"no results in {', '.join(map(str, paths))}: {runs}, and none succeeded",
            "See the column `error` in runs.csv for the reason.",
        )
    return reading


def _left_out(count: int) -> str:
    if not count:
        return "there is no other"
    return f"{count} more left out (all of them: mgpubench compare {DEFAULT_OUT})"
