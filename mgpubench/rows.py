"""One line of runs.csv to a `RunRecord`, or the reason why not.

A number that looks odd is never guessed at: `1,234.5` and `1234,5` are faults. Text is taken
literally, so that `NA` or `None` is a setting and not a gap. The fields of `RunRecord` decide how
a column is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from typing import Any, get_args, get_type_hints

from mgpubench.records import RunRecord, Status
from mgpubench.results import is_formula

NEVER_EMPTY = tuple(field.name for field in fields(RunRecord) if field.default is MISSING)
"""Columns without which a row says nothing."""

REQUIRED_COLUMNS = (*NEVER_EMPTY, "throughput_samples_per_s")

THROUGHPUT_LIMITS_SAMPLES_PER_S = (1e-12, 1e12)
"""Beyond these a figure is a fault of the file, and exponentials would overflow later on."""

THROUGHPUT_TOLERANCE = 0.01
"""How far throughput may be from samples / window_s before the row contradicts itself."""

NEVER_NEGATIVE = (
    *("window_s", "step_time_median_s", "step_time_p95_s", "step_time_p99_s", "step_time_max_s"),
    *("data_wait_s", "samples", "steps", "warmup_steps", "global_batch", "batch_per_device"),
    *("num_parameters", "parameter_bytes", "dataset_samples", "image_size", "compile_s"),
)

STATUSES = get_args(Status)

MAX_DIGITS = 19
"""Of a whole number; longer ones are a fault of the file, and no float holds them."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_TEXT = re.compile("[\0\udc80-\udcff]")
"""NUL, and what the error handler `surrogateescape` makes of bytes that are not UTF-8."""


class RowFault(Exception):
    """Why a line cannot be used."""


def is_text(cells: Sequence[str]) -> bool:
    """False where a cell holds bytes that are no text in UTF-8."""
    return not _NOT_TEXT.search("".join(cells))


def parse_row(header: Sequence[str], cells: Sequence[str]) -> RunRecord:
    """The run in one line; columns that `RunRecord` does not know are ignored.

    Raises:
        RowFault: if a cell cannot be read as what its column holds, or the row contradicts itself.
    """
    if len(cells) != len(header):
        raise RowFault(f"{len(cells)} fields where the header has {len(header)}")
    if not is_text(cells):
        raise RowFault("holds bytes that are not text")
    values: dict[str, Any] = {
        column: parse_cell(column, cell)
        for column, cell in zip(header, cells, strict=True)
        if column in PARSERS
    }
    record = RunRecord(**values)
    _check(record)
    return record


def parse_cell(column: str, cell: str) -> object:
    """The value in one cell of a known column.

    Raises:
        RowFault: if it is not what the column holds.
    """
    if not cell and column in NEVER_EMPTY:
        raise RowFault(f"{column} is empty")
    try:
        return PARSERS[column](cell)
    except ValueError as error:
        raise RowFault(f"{column} is {cell!r}, which is {error}") from None


def _check(record: RunRecord) -> None:
    """Refuse what contradicts itself, before a wrong figure gets into a table."""
    if record.status not in STATUSES:
        raise RowFault(f"status is {record.status!r}, which is not one of {', '.join(STATUSES)}")
    if record.num_devices < 1:
        raise RowFault(f"num_devices is {record.num_devices}")
    for column in NEVER_NEGATIVE:
        value = getattr(record, column)
        if value is not None and value < 0:
            raise RowFault(f"{column} is {value!r}, and cannot be negative")
    if record.is_ok:
        _check_throughput(record)
        _check_samples(record)


def _check_samples(record: RunRecord) -> None:
    """Samples are those of all steps of the window."""
    if record.samples is None or record.global_batch is None or record.steps is None:
        return
    if record.samples != record.global_batch * record.steps:
        raise RowFault(
            f"samples is {record.samples}, and global_batch x steps is {record.global_batch} x "
            f"{record.steps}"
        )


def _check_throughput(record: RunRecord) -> None:
    low, high = THROUGHPUT_LIMITS_SAMPLES_PER_S
    throughput = record.throughput_samples_per_s
    if throughput is None:
        raise RowFault("status is ok, and throughput_samples_per_s is empty")
    if not low < throughput < high:
        raise RowFault(f"throughput_samples_per_s is {throughput!r}")
    if record.samples is None or record.window_s is None:
        return
    expected = record.samples / record.window_s if record.window_s > 0 else 0.0
    if not math.isclose(throughput, expected, rel_tol=THROUGHPUT_TOLERANCE):
        raise RowFault(
            f"throughput_samples_per_s is {throughput!r}, and samples / window_s is "
            f"{record.samples!r} / {record.window_s!r}"
        )


def _float(cell: str) -> float:
    if not _NUMBER.fullmatch(cell.strip()) or not math.isfinite(float(cell)):
        raise ValueError("not a number like 1234.5")
    return float(cell)


def _int(cell: str) -> int:
    if cell.strip().isdecimal() and cell.isascii() and len(cell) <= MAX_DIGITS:
        return int(cell)
    # A spreadsheet may have made 8.0 of 8.
    number = _float(cell)
    if not number.is_integer() or abs(number) >= 10**MAX_DIGITS:
        raise ValueError("not a whole number")
    return int(number)


def _bool(cell: str) -> bool:
    # A spreadsheet may have made TRUE of true.
    if cell.lower() not in ("true", "false"):
        raise ValueError("not true or false")
    return cell.lower() == "true"


def _or_unknown(parse: Callable[[str], object]) -> Callable[[str], object]:
    return lambda cell: parse(cell) if cell else None


def _text(cell: str) -> str:
    # The writer keeps spreadsheets from running it as a formula.
    return cell[1:] if cell.startswith("'") and is_formula(cell) else cell


_PARSERS_OF_TYPES: dict[object, Callable[[str], object]] = {
    str: _text,
    int: _int,
    int | None: _or_unknown(_int),
    float | None: _or_unknown(_float),
    bool | None: _or_unknown(_bool),
}

PARSERS = {column: _PARSERS_OF_TYPES[kind] for column, kind in get_type_hints(RunRecord).items()}
"""How each column of runs.csv is read."""
