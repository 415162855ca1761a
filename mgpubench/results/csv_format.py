"""How values become CSV: unknown is empty, a float has all its digits, one row is one line.

UTF-8 with `,` and `.` in every locale.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Literal, TextIO

from mgpubench.errors import BenchError
from mgpubench.results.whole_file import sync_file

_CELL_SAFE = str.maketrans({"\r": " ", "\n": " ", "\0": "\N{REPLACEMENT CHARACTER}"})
"""One row is one line, so that an unfinished row can only be the last line of a file."""

FORMULA_SIGNS = ("=", "+", "-", "@", "\t")
"""A spreadsheet runs a text that starts with one of these as a formula."""


def format_cell(value: object) -> str:
    """A value as a CSV cell.

    A text that a spreadsheet would run as a formula gets an apostrophe in front, which marks it as
    text.

    Raises:
        ValueError: for NaN and infinity, which are our bug and never a result.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _format_float(value)
    text = str(value).translate(_CELL_SAFE)
    return f"'{text}" if isinstance(value, str) and is_formula(text) else text


def _format_float(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"{value} must not get into a result file")
    # float.__repr__, because numpy's floats have a different one.
    return float.__repr__(value)


def is_formula(text: str) -> bool:
    """True for a text that a spreadsheet would run.

    True also behind apostrophes, so that the reader can remove the one that `format_cell` added.
    """
    return text.lstrip("'").startswith(FORMULA_SIGNS)


def write_rows(file: TextIO, rows: Iterable[Iterable[object]]) -> None:
    """Write rows of values as CSV: RFC 4180 quoting, lines that end with a line feed."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([format_cell(value) for value in row] for row in rows)


def append_records(path: Path, columns: Sequence[str], records: Iterable[object]) -> None:
    """Append one row for each record. The rows are on the disk when this returns.

    Raises:
        BenchError: if the disk refuses; the file is then as it was.
    """
    values = attrgetter(*columns)
    with _all_or_nothing(path), open_text(path, "a") as file:
        write_rows(file, (values(record) for record in records))
        sync_file(file)


@contextmanager
def _all_or_nothing(path: Path) -> Iterator[None]:
    """Cut the file back to its old length on any failure: half a line would spoil the next one."""
    size_bytes = None
    try:
        size_bytes = path.stat().st_size
        yield
    except BaseException as error:
        if size_bytes is not None:
            with suppress(OSError):
                os.truncate(path, size_bytes)
        if isinstance(error, OSError):
            raise BenchError(
                f"{path} cannot be written: {error.strerror}",
                "Runs written before are kept; make room, or give another folder with --out.",
            ) from error
        raise


def open_text(path: Path, mode: Literal["x", "a", "w"]) -> TextIO:
    """Open a file for text in UTF-8."""
    # backslashreplace: a file name that is not UTF-8 must not cost the run that it belongs to.
    return open(path, mode, encoding="utf-8", errors="backslashreplace", newline="")
