"""The command line. Its modules import only Click until the options have been checked."""

from __future__ import annotations

import importlib
import sys
import traceback
from typing import Any

import click

from mgpubench import __version__
from mgpubench.cli.options import is_verbose
from mgpubench.cli.streams import prepare_streams
from mgpubench.errors import BenchError
from mgpubench.format import plain

COMMANDS = {
    "run": "Train in each mode and write the results.",
    "compare": "Say which is faster, by how much, and whether it is real.",
    "report": "Write the comparison as a page, to be handed on.",
    "train": "Train a model, with checkpoints and evaluation.",
    "evaluate": "Say how accurate a trained model is.",
    "predict": "Say what a trained model sees in images.",
    "export": "Write a trained model as safetensors.",
    "comm": "Measure how fast the devices exchange data.",
    "info": "Show the machine, and what on it will hurt a benchmark.",
}
"""Each command, a function in the module of its name, and what it is for."""


class Commands(click.Group):
    """The commands. A BenchError in one becomes one line, a hint and an exit code.

    A command is imported when it is called: `--help` and `compare` need not load the options of
    the others.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of their use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(
            importlib.import_module(f"mgpubench.cli.{cmd_name}"), cmd_name
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in the help."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

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


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="mgpubench")
def cli() -> None:
    """Measure whether DataParallel or DistributedDataParallel trains faster on your GPUs."""


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
