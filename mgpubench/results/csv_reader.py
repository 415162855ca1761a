"""Reading a result file line by line: what can be used, and a warning for everything else.

`row_format` reads a single line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, TypeVar

from mgpubench.errors import ResultsUnreadable
from mgpubench.results.row_format import RowFault, RowFormat, is_text
from mgpubench.results.schema import SCHEMA_VERSION

Record = TypeVar("Record")


def read_records(path: Path, rows: RowFormat[Record]) -> tuple[list[Record], list[str]]:
    """The records of a file, and a line about each line that was left out.

    Raises:
        ResultsUnreadable: if it is not such a file, or none of its rows can be used.
    """
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            return _read_lines(path, _split(file), rows)
    except OSError as error:
        raise ResultsUnreadable(f"{path} cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class _Line:
    """One record of a CSV file, which may span several lines of text."""

    place: str
    cells: list[str]
    fault: str
    is_unfinished: bool
    """The file ends inside it: its writer was killed, or the disk was full."""


class _Text:
    """The lines of a text. The last one that was read is kept."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.last_line = ""

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.last_line = line
            yield line


def _split(file: TextIO) -> Iterator[_Line]:
    """The records of a file that are not blank, with their line numbers."""
    text = _Text(file)
    # strict: after a missing quotation mark, a lenient reader may join two runs into one.
    reader = csv.reader(text, strict=True)
    while True:
        first = reader.line_num + 1
        cells, fault = [], ""
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            fault = f"not valid CSV ({error})"
        last = reader.line_num
        if fault or any(cells):
            place = f"line {first}" if first == last else f"lines {first} to {last}"
            yield _Line(place, cells, fault, not text.last_line.endswith(("\n", "\r")))


def _read_lines(
    path: Path, lines: Iterator[_Line], rows: RowFormat[Record]
) -> tuple[list[Record], list[str]]:
    header = _read_header(path, next(lines, None), rows)
    records: list[Record] = []
    warnings: list[str] = []
    first_fault = ""
    for line in lines:
        where = f"{path}: {line.place}"
        if line.cells == header:
            warnings.append(f"{where}: a repeated header; skipped")
            continue
        try:
            records.append(_read_line(where, header, line, rows))
        except RowFault as fault:
            if not line.is_unfinished:
                first_fault = first_fault or f"{where}: {fault}"
            warnings.append(f"{where}: {fault}; skipped")
    if first_fault and not records:
        raise ResultsUnreadable(
            f"{first_fault}; no row of the file can be used",
            "Fields are separated by ',' and numbers look like 1234.5.",
        )
    return records, warnings


def _read_header(path: Path, line: _Line | None, rows: RowFormat[Record]) -> list[str]:
    if line is None:
        raise ResultsUnreadable(
            f"{path} is empty", "What is interrupted at its start leaves such a file."
        )
    header = line.cells
    if line.fault or not is_text(header):
        raise ResultsUnreadable(f"{path} is not a CSV file in UTF-8")
    missing = [column for column in rows.required if column not in header]
    if missing and ";" in header[0]:
        raise ResultsUnreadable(
            f"{path} is separated by ';' and not by ','",
            "Save it with ',' between the fields and numbers like 1234.5.",
        )
    if missing:
        raise ResultsUnreadable(f"{path} has no column {', '.join(missing)}")
    twice = [column for column in rows.parsers if header.count(column) > 1]
    if twice:
        raise ResultsUnreadable(f"{path} has more than one column {', '.join(twice)}")
    return header


def _read_line(where: str, header: list[str], line: _Line, rows: RowFormat[Record]) -> Record:
    if line.fault:
        raise RowFault(line.fault)
    if len(line.cells) == len(header):
        version = line.cells[header.index("schema_version")]
        _check_version(where, rows.parse_cell("schema_version", version))
    record = rows.parse_row(header, line.cells)
    if line.is_unfinished:
        # `--resume` removes such a line too, and makes its run again.
        raise RowFault("the last line has no line feed, so its last cell may be cut off")
    return record


def _check_version(where: str, version: object) -> None:
    """Check the version before all other columns, whose meaning depends on it."""
    if version != SCHEMA_VERSION:
        raise ResultsUnreadable(
            f"{where}: unknown schema_version {version}; this mgpubench reads {SCHEMA_VERSION}",
            "A newer mgpubench wrote this file; update this one.",
        )
