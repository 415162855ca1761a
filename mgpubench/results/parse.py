"""From one line of runs.csv to a `RunRecord`, or to the reason why not.

An odd number is never guessed: `1,234.5` and `1234,5` are faults. Text is taken literally, so that
`NA` or `None` is a setting and not a gap. The fields of `RunRecord` decide how a column is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from typing import Any, get_args, get_type_hints

from mgpubench.config.types import EFFECTIVE_MODES
from mgpubench.results.csv_format import is_formula
from mgpubench.results.identities import TOLERANCE, contradictions
from mgpubench.results.schema import RunRecord, Status

NEVER_EMPTY = tuple(field.name for field in fields(RunRecord) if field.default is MISSING)
"""Columns without which a row is useless."""

REQUIRED_COLUMNS = (*NEVER_EMPTY, "throughput_samples_per_s")

THROUGHPUT_LIMITS_SAMPLES_PER_S = (1e-12, 1e12)
"""A figure outside these limits is a fault of the file, and would overflow in exponentials."""

STATUSES = get_args(Status)

MAX_DIGITS = 19
"""A whole number with more digits is a fault of the file, and does not fit into a float."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_TEXT = re.compile("[\0\udc80-\udcff]")
"""NUL, and what the error handler `surrogateescape` makes of bytes that are not UTF-8."""


class RowFault(Exception):
    """Why a line cannot be used."""


def is_text(cells: Sequence[str]) -> bool:
    """False if a cell holds bytes that are not UTF-8 text."""
    return not _NOT_TEXT.search("".join(cells))


def parse_row(header: Sequence[str], cells: Sequence[str]) -> RunRecord:
    """The run in one line. Columns that `RunRecord` does not have are ignored.

    Raises:
        RowFault: if a cell does not fit its column, or the row contradicts itself.
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
        RowFault: if it does not fit the column.
    """
    if not cell and column in NEVER_EMPTY:
        raise RowFault(f"{column} is empty")
    try:
        return PARSERS[column](cell)
    except ValueError as error:
        raise RowFault(f"{column} is {cell!r}, which is {error}") from None


def _check(record: RunRecord) -> None:
    """Refuse a row that contradicts itself, before a wrong figure gets into a table."""
    if record.status not in STATUSES:
        raise RowFault(f"status is {record.status!r}, which is not one of {', '.join(STATUSES)}")
    if record.num_devices < 1:
        raise RowFault(f"num_devices is {record.num_devices}")
    for column in NUMBERS:
        value = getattr(record, column)
        if value is not None and value < 0:
            raise RowFault(f"{column} is {value!r}, and cannot be negative")
    _check_mode(record)
    for contradiction in contradictions(record):
        raise RowFault(contradiction)
    if record.is_ok:
        _check_throughput(record)
        _check_samples(record)


def _check_mode(record: RunRecord) -> None:
    """The mode is known, and the effective mode belongs to it."""
    if record.mode not in EFFECTIVE_MODES:
        raise RowFault(f"mode is {record.mode!r}, which is not one of {', '.join(EFFECTIVE_MODES)}")
    if record.effective_mode and record.effective_mode not in EFFECTIVE_MODES[record.mode]:
        raise RowFault(f"mode is {record.mode!r}, and effective_mode {record.effective_mode!r}")


def _check_samples(record: RunRecord) -> None:
    """The samples are those of all steps of the window."""
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
    if record.window_s == 0:
        raise RowFault(f"samples / window_s is {record.samples} / {record.window_s!r}")
    _check_ratio(record, "throughput_samples_per_s", "samples", "window_s")
    _check_ratio(
        record, "throughput_per_device_samples_per_s", "throughput_samples_per_s", "num_devices"
    )


def _check_ratio(record: RunRecord, ratio: str, above: str, below: str) -> None:
    """If all three are known, the first is the second divided by the third."""
    values = [getattr(record, column) for column in (ratio, above, below)]
    if None not in values and not math.isclose(values[0], values[1] / values[2], rel_tol=TOLERANCE):
        raise RowFault(
            f"{ratio} is {values[0]!r}, and {above} / {below} is {values[1]!r} / {values[2]!r}"
        )


def _float(cell: str) -> float:
    if not _NUMBER.fullmatch(cell.strip()) or not math.isfinite(float(cell)):
        raise ValueError("not a number like 1234.5")
    return float(cell)


def _int(cell: str) -> int:
    if cell.strip().isdecimal() and cell.isascii() and len(cell) <= MAX_DIGITS:
        return int(cell)
    # A spreadsheet may have turned 8 into 8.0.
    number = _float(cell)
    if not number.is_integer() or abs(number) >= 10**MAX_DIGITS:
        raise ValueError("not a whole number")
    return int(number)


def _bool(cell: str) -> bool:
    # A spreadsheet may have turned true into TRUE.
    if cell.lower() not in ("true", "false"):
        raise ValueError("not true or false")
    return cell.lower() == "true"


def _peaks(cell: str) -> str:
    if cell and not re.fullmatch("[0-9]+(;[0-9]+)*", cell):
        raise ValueError("not whole numbers joined by ';'")
    return cell


def _or_unknown(parse: Callable[[str], object]) -> Callable[[str], object]:
    return lambda cell: parse(cell) if cell else None


def _text(cell: str) -> str:
    # The writer added the apostrophe to keep spreadsheets from running it as a formula.
    return cell[1:] if cell.startswith("'") and is_formula(cell) else cell


_PARSERS_OF_TYPES: dict[object, Callable[[str], object]] = {
    str: _text,
    int: _int,
    int | None: _or_unknown(_int),
    float | None: _or_unknown(_float),
    bool | None: _or_unknown(_bool),
}

_TYPES = get_type_hints(RunRecord)

PARSERS = {column: _PARSERS_OF_TYPES[kind] for column, kind in _TYPES.items()} | {
    "peak_memory_bytes": _peaks
}
"""How each column of runs.csv is read."""

NUMBERS = [
    column
    for column, kind in _TYPES.items()
    if kind in (int, int | None, float | None) and column != "step_time_change"
]
"""Columns with numbers that cannot be negative."""
