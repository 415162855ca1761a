"""`mgpubench report`: the comparison as one page, to be handed on."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mgpubench.cli.compare_options import baseline_option, margin_option
from mgpubench.cli.compare_sources import read
from mgpubench.cli.paths import PATH
from mgpubench.cli.streams import warn
from mgpubench.config.types import DEFAULT_OUT
from mgpubench.errors import BenchError, RequestRefused
from mgpubench.format import format_size, shell_path, shown_path

if TYPE_CHECKING:
    from mgpubench.analysis.row import Baseline

BEGINNING = 4096
"""Bytes in which a page says what made it."""


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=PATH)
@click.option(
    "--out",
    default=Path("report.html"),
    show_default=True,
    type=PATH,
    metavar="FILE",
    help="The page. An older report of this name is replaced, and any other file is not.",
)
@baseline_option("MODE|MODE/OPTIONS|VARIANT")
@margin_option
@click.option("--open", "open_it", is_flag=True, help="Show the page in the browser.")
def report(
    paths: tuple[Path, ...], out: Path, baseline: Baseline | None, margin: float, open_it: bool
) -> None:
    """Write the comparison as one HTML page, to be handed on.

    PATH is a session folder, a folder of sessions or a runs.csv. Without a PATH it is the newest
    session under results, with the newest sessions of the same work for modes that it lacks.

    The page is one file that needs no network. It has the answer, the tables, the findings and
    what to do about them, the machine, the commands that repeat it, and all runs.
    """
    check_replaceable(out)
    refuse_trainings(paths)
    from mgpubench.cli.compare_trainings import note_trainings
    from mgpubench.report.html.make import make_page
    from mgpubench.report.html.page import render

    reading = read(paths)
    note_trainings(paths or [Path(DEFAULT_OUT)])
    html = render(make_page(reading, baseline, margin, paths)).encode(errors="replace")
    write(out, html)
    click.echo(f"written: {shown_path(out)} ({format_size(len(html))})", err=True)
    if open_it:
        show(out)


def check_replaceable(out: Path) -> None:
    """Refuse a place where there is something that is no report.

    Raises:
        RequestRefused: if a file there was not made by this command, or if nothing can be written.
    """
    from mgpubench.results.session_folder import RUNS_CSV

    if out.is_dir():
        raise RequestRefused(
            f"{out} is a folder", f"Name a file in it, such as --out {out / 'report.html'}"
        )
    if not out.parent.is_dir():
        raise RequestRefused(f"{out} cannot be written: {out.parent} is not a folder")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise RequestRefused(f"{out} cannot be written: {out.parent} is not writable")
    if os.path.lexists(out) and not is_own(out):
        raise RequestRefused(
            f"{out} is there, and is not a report of mgpubench",
            f"Give another name with --out. {RUNS_CSV} and other files are never replaced.",
        )


def is_own(path: Path) -> bool:
    """True if a file was made by this command."""
    from mgpubench.report.html.page import is_report

    try:
        with open(path, "rb") as file:
            return is_report(file.read(BEGINNING).decode(errors="replace"))
    except OSError:
        return False


def refuse_trainings(paths: Sequence[Path]) -> None:
    """Refuse paths with nothing but trainings: one training is one observation.

    Raises:
        RequestRefused: if there are such paths.
    """
    from mgpubench.cli.compare_trainings import choose_trainings

    if choose_trainings(paths, ""):
        raise RequestRefused(
            f"{paths[0]} has trainings, and a report is about runs",
            "mgpubench compare shows trainings.",
        )


def write(out: Path, html: bytes) -> None:
    """Write the page, whole or not at all.

    Raises:
        BenchError: if the disk refuses.
    """
    from mgpubench.results.whole_file import write_whole

    try:
        with write_whole(out, durable=False) as file:
            file.write(html)
    except OSError as error:
        raise BenchError(
            f"{out} cannot be written: {error.strerror}", "Make room, or give another --out."
        ) from error


def show(path: Path) -> None:
    """Open a page in the browser, or say that there is none."""
    if not webbrowser.open(path.absolute().as_uri()):
        warn(f"no browser was found; open {shell_path(path)} in one")
