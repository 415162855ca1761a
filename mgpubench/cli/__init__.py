"""The command line. Its modules import only Click until the options have been checked."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import click

from mgpubench import __version__
from mgpubench.cli.compare import compare
from mgpubench.cli.evaluate import evaluate
from mgpubench.cli.export import export
from mgpubench.cli.info import info
from mgpubench.cli.options import is_verbose
from mgpubench.cli.predict import predict
from mgpubench.cli.run import run
from mgpubench.cli.streams import prepare_streams
from mgpubench.cli.train import train
from mgpubench.errors import BenchError
from mgpubench.format import plain


class ErrorGroup(click.Group):
    """A group of commands in which a BenchError becomes one line, a hint and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BenchError as error:
            if is_verbose(ctx):
                traceback.print_exception(error)
                click.echo(error.details, err=True)
            print_error(error)
            return ctx.exit(error.exit_code)


@click.group(cls=ErrorGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="mgpubench")
def cli() -> None:
    """Measure whether DataParallel or DistributedDataParallel trains faster on your GPUs.

    \b
    mgpubench run        train in each mode and write the results
    mgpubench compare    print which is faster, by how much, and whether it is real
    mgpubench train      train a model, with checkpoints and evaluation
    mgpubench evaluate   how accurate a trained model is
    mgpubench predict    what a trained model sees in images
    mgpubench export     write a trained model as safetensors
    mgpubench info       show the machine, and what on it will hurt a benchmark
    """


cli.add_command(run)
cli.add_command(train)
cli.add_command(evaluate)
cli.add_command(predict)
cli.add_command(export)
cli.add_command(compare)
cli.add_command(info)


def main() -> None:
    """Run the command line, and exit with its code."""
    prepare_streams()
    try:
        try:
            cli()
        finally:
            # Not when the interpreter ends, where an error would be a traceback.
            sys.stdout.flush()
    except BenchError as error:
        print_error(error)
        sys.exit(error.exit_code)


def print_error(error: BenchError) -> None:
    """Print what is wrong, and what to do next."""
    click.echo(f"error: {plain(error.message)}", err=True)
    if error.hint:
        click.echo(f"hint: {plain(error.hint)}", err=True)
