"""The command line. Modules here import only Click until their options have been checked."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import Any

import click

from mgpubench import __version__
from mgpubench.cli.compare import compare
from mgpubench.cli.info import info
from mgpubench.cli.options import is_verbose
from mgpubench.cli.run import run
from mgpubench.errors import BenchError
from mgpubench.format import plain

EXIT_AFTER_SIGINT = 130

CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Of stdout: what is written to files raises errors of our own."""


class ErrorGroup(click.Group):
    """A group in which an error of the user's is one line and a hint, with its own exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except BenchError as error:
            if is_verbose(ctx):
                traceback.print_exception(error)
                click.echo(error.details, err=True)
            click.echo(f"error: {plain(error.message)}", err=True)
            if error.hint:
                click.echo(f"hint: {plain(error.hint)}", err=True)
            return ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("error: interrupted by SIGINT", err=True)
            return ctx.exit(EXIT_AFTER_SIGINT)


@click.group(cls=ErrorGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="mgpubench")
def cli() -> None:
    """Measure whether DataParallel or DistributedDataParallel trains faster on your GPUs.

    \b
    mgpubench run        train in each mode and write the results
    mgpubench compare    print who is faster, by how much, and whether it is real
    mgpubench info       show the machine, and what on it will hurt a benchmark
    """


cli.add_command(run)
cli.add_command(compare)
cli.add_command(info)


def main() -> None:
    """Run the command line, and end with its exit code."""
    prepare_streams()
    try:
        try:
            cli()
        finally:
            # Here and not as the interpreter ends, where an error would be a traceback.
            sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()  # the reader has seen enough
    except OSError as error:
        if error.errno not in CANNOT_WRITE:
            raise
        silence_stdout()
        click.echo(f"error: stdout cannot be written: {error.strerror}", err=True)
        sys.exit(BenchError.exit_code)


def silence_stdout() -> None:
    """Let the interpreter end without another try to write what is in the buffer."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def prepare_streams() -> None:
    """Make sure that what is said can be written: to no terminal, or to one that knows only ASCII.

    A measurement must not end because of a character in a file name.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller: `2>&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        else:
            stream.reconfigure(errors="backslashreplace")
