"""The part of `mgpubench compare` that is about trainings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mgpubench.cli.compare_plot import OF_PICTURES
from mgpubench.cli.options import is_given
from mgpubench.cli.streams import warn
from mgpubench.config.types import DEFAULT_OUT
from mgpubench.errors import NoUsableResults, RequestRefused
from mgpubench.format import format_count, shell_path

if TYPE_CHECKING:
    from mgpubench.analysis.row import Baseline
    from mgpubench.analysis.trainings import TrainingRow
    from mgpubench.results.read_trainings import Training

PRICES = {"price_per_hour": "--price-per-hour", "price_per_kwh": "--price-per-kwh"}

OF_RUNS = {"margin": "--margin", "allowed": "--fail-if-slower", "strict": "--strict", **PRICES}
"""Options that judge a difference. One training is one observation, and cannot be judged. Prices
are for samples, which a training also evaluates and saves."""

OF_TRAININGS = {"trainings": "--trainings", "to_top1": "--to-accuracy"}


def choose_trainings(paths: Sequence[Path], wanted: str) -> bool:
    """True if the trainings in some paths are to be compared, and False if the runs are.

    Of a folder with both, the runs are, unless another path has nothing but trainings, or an option
    asks for them. `wanted` is the name of this option, or empty.

    Raises:
        RequestRefused: if one path has only runs, and another one only trainings.
    """
    from mgpubench.results.find import contents_of
    from mgpubench.results.session_folder import RUNS_CSV
    from mgpubench.results.training import EPOCHS_CSV

    # A path with neither is refused, or warned about, when it is read.
    contents = {path: found for path in paths if (found := contents_of(path))}
    no_runs = [path for path, found in contents.items() if RUNS_CSV not in found]
    no_trainings = [path for path, found in contents.items() if EPOCHS_CSV not in found]
    if wanted and no_trainings:
        raise RequestRefused(f"{wanted} is for trainings, and {no_trainings[0]} has only runs")
    if no_runs and no_trainings:
        raise RequestRefused(
            f"{no_runs[0]} has trainings, and {no_trainings[0]} has runs: they are not compared "
            "with each other",
            "Compare runs, or trainings.",
        )
    return bool(wanted or no_runs)


def wanted_by(ctx: click.Context, options: Mapping[str, str]) -> str:
    """The first of some options that is on the command line; empty if none is."""
    return next((option for name, option in options.items() if is_given(ctx, name)), "")


def refuse_options(ctx: click.Context, options: Mapping[str, str], reason: str) -> None:
    """Refuse the first of some options that is on the command line."""
    if option := wanted_by(ctx, options):
        raise RequestRefused(f"{option} {reason}")


def note_trainings(paths: Sequence[Path]) -> None:
    """Say how many trainings lie beside the runs that are compared."""
    from mgpubench.results.find import find_all
    from mgpubench.results.training import EPOCHS_CSV

    folders = [path for path in paths if path.is_dir()]
    files, _ = find_all(folders, EPOCHS_CSV)
    if files:
        places = " ".join(map(shell_path, folders))
        click.echo(
            f"note: left out {format_count(len(files), 'training')} (to compare them: mgpubench "
            f"compare {places} --trainings)",
            err=True,
        )


def compare_trainings(ctx: click.Context, paths: Sequence[Path], baseline: Baseline | None) -> None:
    """Print the epochs of trainings side by side, and their figures as a whole.

    Raises:
        RequestRefused: if an option is given that is about runs.
    """
    from mgpubench.analysis.trainings import compare_trainings

    refuse_options(ctx, OF_RUNS | OF_PICTURES, "is for runs, and does not go with trainings")
    to_top1, output_format = ctx.params["to_top1"], ctx.params["output_format"]
    trainings = read(paths or [Path(DEFAULT_OUT)])
    print_rows(compare_trainings(trainings, baseline, to_top1), to_top1, output_format)


def read(paths: Sequence[Path]) -> list[Training]:
    """The trainings with a finished epoch. Prints what was left out.

    Raises:
        NoUsableResults: if there is none.
    """
    from mgpubench.results.read_trainings import read_trainings

    found = read_trainings(paths)
    for warning in found.warnings:
        warn(warning)
    finished = [training for training in found.trainings if training.epochs]
    unfinished = [training.folder for training in found.trainings if not training.epochs]
    if not finished:
        raise NoUsableResults(
            f"no results in {', '.join(map(str, paths))}: "
            f"{format_count(len(unfinished), 'training')}, and no finished epoch",
            f"Go on with it: mgpubench train --resume {shell_path(unfinished[0])}",
        )
    for folder in unfinished:
        warn(f"{folder}: left out, since it has no finished epoch")
    return finished


def print_rows(rows: Sequence[TrainingRow], to_top1: float | None, output_format: str) -> None:
    """Print trainings in a format."""
    if output_format == "table":
        from mgpubench.report.console import open_console
        from mgpubench.report.tables import print_sections
        from mgpubench.report.training_table import describe_trainings

        print_sections(describe_trainings(rows, to_top1), open_console())
        return
    from mgpubench.report.tables import sections_markdown
    from mgpubench.report.training_export import trainings_to_csv, trainings_to_json
    from mgpubench.report.training_table import describe_trainings

    formats: dict[str, Callable[[], str]] = {
        "markdown": lambda: sections_markdown(describe_trainings(rows, to_top1)),
        "csv": lambda: trainings_to_csv(rows, to_top1),
        "json": lambda: f"{trainings_to_json(rows, to_top1)}\n",
    }
    click.echo(formats[output_format](), nl=False)
