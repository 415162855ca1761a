"""`mgpubench compare --plot FILE`: what is asked for, and the file, also of `comm --plot`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mgpubench.cli.options import is_given
from mgpubench.cli.paths import PATH
from mgpubench.config.types import PLOT_FORMATS, PLOT_KINDS
from mgpubench.errors import BenchError, RequestRefused
from mgpubench.format import shown_path

if TYPE_CHECKING:
    from mgpubench.report.plots.measured import Measured

OF_PICTURES = {"plot": "--plot", "plot_kinds": "--plot-kind"}

INSTALL = "pip install 'mgpubench[plot]', or pip install matplotlib"


def plot_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options about pictures."""
    kinds = click.option(
        "--plot-kind",
        "plot_kinds",
        multiple=True,
        type=click.Choice(PLOT_KINDS),
        help="A picture to draw; may be given several times.  [default: all that apply]",
    )
    plot = click.option(
        "--plot",
        type=PATH,
        metavar="FILE",
        help="Draw the comparison too: an SVG, PNG or PDF file, by its suffix.",
    )
    return plot(kinds(command))


def check_plot(context: click.Context) -> None:
    """Refuse pictures that cannot be made, before anything is read.

    Raises:
        RequestRefused: naming the option.
    """
    path: Path | None = context.params["plot"]
    if path is None:
        if is_given(context, "plot_kinds"):
            raise RequestRefused("--plot-kind has no meaning without --plot FILE")
        return
    check_plot_file(path)


def check_plot_file(path: Path) -> None:
    """Refuse a file that could not be drawn, before anything is read or measured.

    Raises:
        RequestRefused: naming the file, or the package that is missing.
    """
    if path.suffix.lower().removeprefix(".") not in PLOT_FORMATS:
        raise RequestRefused(
            f"--plot {shown_path(path)}: the name must end with .svg, .png or .pdf"
        )
    if os.path.isdir(path):  # a name that is too long is no folder either
        raise RequestRefused(f"--plot {shown_path(path)} is a folder", "Name a file in it.")
    if not os.path.isdir(path.parent):
        raise RequestRefused(f"--plot {shown_path(path)}: its folder does not exist")
    if not os.access(path.parent, os.W_OK):
        raise RequestRefused(f"--plot {shown_path(path)}: its folder cannot be written to")
    if find_spec("matplotlib") is None:
        raise RequestRefused("--plot needs the package matplotlib, which is not installed", INSTALL)


def kinds_to_draw(measured: Measured, wanted: Sequence[str]) -> tuple[str, ...]:
    """The wanted kinds of pictures, or all for which there is something to draw.

    Raises:
        RequestRefused: if there is nothing to draw for a wanted kind, or for any.
    """
    from mgpubench.report.plots.page import apply, needs

    found = apply(measured, [kind for kind in PLOT_KINDS if kind in (wanted or PLOT_KINDS)])
    for kind in wanted:
        if kind not in found:
            raise RequestRefused(f"--plot-kind {kind}: nothing to draw; it needs {needs(kind)}")
    if not found:
        raise RequestRefused("--plot: nothing to draw: one run has nothing to be compared with")
    return found


def draw_plot(measured: Measured, kinds: Sequence[str], path: Path) -> None:
    """Write the picture, and say so on stderr.

    Raises:
        BenchError: if the file cannot be written. The old one is then still there.
    """
    from mgpubench.report.plots.page import draw

    write_plot(draw(measured, kinds, path.suffix.lower().removeprefix(".")), path)
    click.echo(f"plot: {shown_path(path)} ({', '.join(kinds)})", err=True)


def write_plot(content: bytes, path: Path) -> None:
    """Write the file of a picture.

    Raises:
        BenchError: if it cannot be written. The old one is then still there.
    """
    from mgpubench.results.whole_file import write_whole

    try:
        with write_whole(path, durable=False) as file:
            file.write(content)
    except OSError as error:
        raise BenchError(
            f"{shown_path(path)} cannot be written: {error.strerror}",
            "Name another file with --plot, or make room.",
        ) from None
