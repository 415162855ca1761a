"""Stdout and stderr that can always be written to.

A measurement must not end because of a character in a file name, a closed terminal, a full disk
under a log, or a reader that has closed the pipe.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TextIO

import click

from mgpubench.errors import BenchError
from mgpubench.format import plain


class ResultStream(io.TextIOWrapper):
    """Stdout: what cannot be written is an error, unless the reader has closed the pipe."""

    def write(self, text: str) -> int:
        """Write, or raise BenchError. After the reader has left, drop the rest."""
        try:
            return super().write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        """Flush, with the same errors."""
        try:
            super().flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        discard(self)
        if not isinstance(error, BrokenPipeError):
            raise BenchError(
                f"stdout cannot be written: {error.strerror}", "Make room, or write somewhere else."
            ) from error


class CommentStream(io.TextIOWrapper):
    """Stderr: once it cannot be written, drop the rest, and let everything else go on."""

    def write(self, text: str) -> int:
        """Write, or give up for good."""
        try:
            return super().write(text)
        except OSError:
            discard(self)
            return len(text)

    def flush(self) -> None:
        """Flush, or give up for good."""
        try:
            super().flush()
        except OSError:
            discard(self)


def discard(stream: TextIO) -> None:
    """Drop all that is written to a stream, and what is in its buffer."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def prepare_streams() -> None:
    """Replace stdout and stderr. A console that knows only ASCII gets escapes for the rest."""
    sys.stdout = _wrap(sys.stdout, ResultStream, 1)
    sys.stderr = _wrap(sys.stderr, CommentStream, 2)


def _wrap(
    stream: TextIO | None, kind: type[ResultStream | CommentStream], descriptor: int
) -> TextIO:
    if stream is None:  # closed by the caller: `2>&-`
        _fill(descriptor)
        return open(os.devnull, "w", encoding="utf-8")
    return kind(
        stream.buffer,
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=kind is CommentStream or stream.isatty(),
    )


def _fill(descriptor: int) -> None:
    """Open a standard descriptor on nothing, or the next file would get its number.

    Child processes inherit it.
    """
    with contextlib.suppress(OSError):
        os.fstat(descriptor)
        return  # it is open
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    if nowhere != descriptor:
        os.close(nowhere)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    click.echo(f"warning: {plain(text)}", err=True)
