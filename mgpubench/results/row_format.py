"""From one line of a result file to a record, or to the reason why not.

An odd number is never guessed: `1,234.5` and `1234,5` are faults. Text is taken literally, so that
`NA` or `None` is a setting and not a gap. The fields of a record decide how a column is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Generic, TypeVar, get_type_hints

from mgpubench.config.types import EFFECTIVE_MODES
from mgpubench.results.csv_format import is_formula

Record = TypeVar("Record")

Parser = Callable[[str], object]

THROUGHPUT_LIMITS_SAMPLES_PER_S = (1e-12, 1e12)
"""A figure outside these limits is a fault of the file, and would overflow in exponentials."""

TOLERANCE = 0.01
"""By this share figures may differ before a row contradicts itself: a spreadsheet may have kept
only a few of their digits."""

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


@dataclass(frozen=True, slots=True)
class RowFormat(Generic[Record]):
    """How the lines of one kind of file become records."""

    kind: type[Record]
    parsers: Mapping[str, Parser]
    """How each column is read. A column that has none is ignored."""
    never_empty: frozenset[str]
    """Columns without which a row is useless."""
    required: tuple[str, ...]
    """Columns that the header must have."""
    check: Callable[[Record], None]
    """Raises RowFault for a record that contradicts itself."""

    def parse_row(self, header: Sequence[str], cells: Sequence[str]) -> Record:
        """The record in one line.

        Raises:
            RowFault: if a cell does not fit its column, or the row contradicts itself.
        """
        if len(cells) != len(header):
            raise RowFault(f"{len(cells)} fields where the header has {len(header)}")
        if not is_text(cells):
            raise RowFault("holds bytes that are not text")
        values: dict[str, Any] = {
            column: self.parse_cell(column, cell)
            for column, cell in zip(header, cells, strict=True)
            if column in self.parsers
        }
        record = self.kind(**values)
        self.check(record)
        return record

    def parse_cell(self, column: str, cell: str) -> object:
        """The value in one cell of a known column.

        Raises:
            RowFault: if it does not fit the column.
        """
        if not cell and column in self.never_empty:
            raise RowFault(f"{column} is empty")
        try:
            return self.parsers[column](cell)
        except ValueError as error:
            raise RowFault(f"{column} is {cell!r}, which is {error}") from None


def make_format(
    kind: type[Record],
    check: Callable[[Record], None],
    *,
    also_required: Sequence[str] = (),
    special: Mapping[str, Parser] | None = None,
) -> RowFormat[Record]:
    """The format of the rows of a dataclass, whose fields are the columns.

    Args:
        kind: the dataclass. A field without a default may not be empty.
        check: raises RowFault for a record that contradicts itself.
        also_required: columns that the header must have although their cells may be empty.
        special: how columns are read whose type does not say it.
    """
    types = get_type_hints(kind)
    parsers = {column: _PARSERS_OF_TYPES[annotation] for column, annotation in types.items()}
    needed = [field.name for field in fields(kind) if field.default is MISSING]  # type: ignore[arg-type]
    return RowFormat(
        kind=kind,
        parsers={**parsers, **(special or {})},
        never_empty=frozenset(needed),
        required=(*needed, *also_required),
        check=check,
    )


def number_columns(kind: type) -> list[str]:
    """The columns of a dataclass that hold numbers."""
    types = get_type_hints(kind)
    return [column for column, annotation in types.items() if annotation in _NUMBER_TYPES]


def check_mode(mode: str, effective_mode: str) -> None:
    """The mode is known, and the effective mode belongs to it.

    Raises:
        RowFault: if not.
    """
    if mode not in EFFECTIVE_MODES:
        raise RowFault(f"mode is {mode!r}, which is not one of {', '.join(EFFECTIVE_MODES)}")
    if effective_mode and effective_mode not in EFFECTIVE_MODES[mode]:
        raise RowFault(f"mode is {mode!r}, and effective_mode {effective_mode!r}")


def check_not_negative(record: object, columns: Sequence[str]) -> None:
    """No number is negative.

    Raises:
        RowFault: naming the first that is.
    """
    for column in columns:
        value = getattr(record, column)
        if value is not None and value < 0:
            raise RowFault(f"{column} is {value!r}, and cannot be negative")


def check_throughput(throughput: float) -> None:
    """A throughput is possible.

    Raises:
        RowFault: if not.
    """
    low, high = THROUGHPUT_LIMITS_SAMPLES_PER_S
    if not low < throughput < high:
        raise RowFault(f"throughput_samples_per_s is {throughput!r}")


def check_ratio(record: object, ratio: str, above: str, below: str) -> None:
    """If all three columns are known, the first is the second divided by the third, which is not 0.

    Raises:
        RowFault: if not.
    """
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


def _or_unknown(parse: Parser) -> Parser:
    return lambda cell: parse(cell) if cell else None


def _text(cell: str) -> str:
    # The writer added the apostrophe to keep spreadsheets from running it as a formula.
    return cell[1:] if cell.startswith("'") and is_formula(cell) else cell


_PARSERS_OF_TYPES: dict[object, Parser] = {
    str: _text,
    int: _int,
    float: _float,
    int | None: _or_unknown(_int),
    float | None: _or_unknown(_float),
    bool | None: _or_unknown(_bool),
}

_NUMBER_TYPES = (int, float, int | None, float | None)
