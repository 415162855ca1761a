"""Reading result files: every run that can be trusted, and a warning for everything else.

Files that can be read are used even if others cannot. It is an error only if nothing can be read.
`parse` reads a single line, and `session_folder` writes what is read here.
"""

from __future__ import annotations

import csv
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TextIO

from mgpubench.errors import ResultsUnreadable
from mgpubench.results.merge import Reading, merge
from mgpubench.results.parse import (
    PARSERS,
    REQUIRED_COLUMNS,
    RowFault,
    is_text,
    parse_cell,
    parse_row,
)
from mgpubench.results.schema import SCHEMA_VERSION, RunRecord
from mgpubench.results.session_folder import RUNS_CSV

EXAMPLE = "example"
"""The published session in `results`: used if it is named, or if there is nothing else."""

_SESSION_NAME = re.compile(r"(\d{8}T\d{6}Z)-")
_MOMENT = "%Y%m%dT%H%M%SZ"

CLOCK_TOLERANCE = timedelta(minutes=5)
"""The clocks of two machines that share a folder may differ by so much."""


def read_sessions(paths: Sequence[Path]) -> Reading:
    """Read session folders, roots of sessions and runs.csv files, each file once.

    Raises:
        ResultsUnreadable: if nothing in any of the paths can be read.
    """
    files, refusals = _find_all(paths)
    readings: dict[Path, Reading] = {}
    for file in files:
        try:
            readings[file] = read_runs(file)
        except ResultsUnreadable as refusal:
            refusals.append(refusal)
    if refusals and not readings:
        raise _sum_up(refusals)
    return merge(readings, [refusal.message for refusal in refusals])


def sessions_newest_first(root: Path) -> Iterator[tuple[Path, list[RunRecord]]]:
    """The session folders under `root` that can be read, with their runs.

    Raises:
        ResultsUnreadable: if there is no session.
    """
    folders = [file.parent for file in _find_files(root)]
    # A folder with a name of its own (an example, a copy) is never the newest.
    # Nor is one from the future: the clock was wrong, and nobody knows when that was.
    folders.sort(
        key=lambda folder: (_is_session(folder), not is_from_future(folder), folder.name),
        reverse=True,
    )
    for folder in folders:
        with suppress(ResultsUnreadable):
            yield folder, read_runs(folder / RUNS_CSV).records


def is_from_future(folder: Path) -> bool:
    """True if the name of a session says that it was made after now."""
    match = _SESSION_NAME.match(folder.name)
    try:
        made = datetime.strptime(match.group(1), _MOMENT) if match else None
    except ValueError:  # the 45th of a month
        return False
    return made is not None and made.replace(tzinfo=UTC) > datetime.now(UTC) + CLOCK_TOLERANCE


def sessions_from_future(root: Path) -> list[Path]:
    """The session folders under `root` that were made while the clock was wrong."""
    return [file.parent for file in _find_files(root) if is_from_future(file.parent)]


def count_sessions(root: Path) -> int:
    """How many session folders are under `root`, without those with a name of their own."""
    return sum(_is_session(file.parent) for file in _find_files(root))


def _is_session(folder: Path) -> bool:
    return bool(_SESSION_NAME.match(folder.name))


def read_runs(path: Path) -> Reading:
    """Read one runs.csv.

    Raises:
        ResultsUnreadable: if it is not such a file, or none of its rows can be used.
    """
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            return _read_lines(path, _split(file))
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


def _find_all(paths: Sequence[Path]) -> tuple[list[Path], list[ResultsUnreadable]]:
    files: dict[str, Path] = {}
    refusals = []
    for path in paths:
        try:
            for file in _find_files(path):
                files.setdefault(os.path.realpath(file), file)
        except ResultsUnreadable as refusal:
            refusals.append(refusal)
    return list(files.values()), refusals


def _find_files(path: Path) -> list[Path]:
    if not os.path.lexists(path):
        raise ResultsUnreadable(
            f"{path}: no such file or folder", "Make results first with: mgpubench run"
        )
    if not path.is_dir():
        return [path]
    if _has_runs(path):
        return [path / RUNS_CSV]
    try:
        children = sorted(path.iterdir())
    except OSError as error:
        raise ResultsUnreadable(f"{path} cannot be read: {error.strerror}") from error
    files = [child / RUNS_CSV for child in children if _has_runs(child)]
    # It came with the repository, and was not measured here.
    own = [file for file in files if file.parent.name != EXAMPLE]
    files = own or files
    if not files:
        raise ResultsUnreadable(
            f"{path} has no sessions: no {RUNS_CSV} in it, nor in a folder in it",
            f"Name a session folder, a folder of sessions, or a {RUNS_CSV}.",
        )
    return files


def _has_runs(folder: Path) -> bool:
    """True also if that is hidden by permissions: reading the file will say why."""
    try:
        return stat.S_ISREG(os.stat(folder / RUNS_CSV).st_mode)
    except PermissionError:
        return True
    except OSError:
        return False


def _sum_up(refusals: Sequence[ResultsUnreadable]) -> ResultsUnreadable:
    first, others = refusals[0], len(refusals) - 1
    more = f" (and {others} more that cannot be used)" if others else ""
    return ResultsUnreadable(first.message + more, first.hint)


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


def _read_lines(path: Path, lines: Iterator[_Line]) -> Reading:
    header = _read_header(path, next(lines, None))
    records: list[RunRecord] = []
    warnings: list[str] = []
    first_fault = ""
    for line in lines:
        where = f"{path}: {line.place}"
        if line.cells == header:
            warnings.append(f"{where}: a repeated header; skipped")
            continue
        try:
            records.append(_read_line(where, header, line))
        except RowFault as fault:
            if not line.is_unfinished:
                first_fault = first_fault or f"{where}: {fault}"
            warnings.append(f"{where}: {fault}; skipped")
    if first_fault and not records:
        raise ResultsUnreadable(
            f"{first_fault}; no row of the file can be used",
            "Fields are separated by ',' and numbers look like 1234.5.",
        )
    return Reading(records, warnings)


def _read_header(path: Path, line: _Line | None) -> list[str]:
    if line is None:
        raise ResultsUnreadable(f"{path} is empty", "An interrupted first run leaves such a file.")
    header = line.cells
    if line.fault or not is_text(header):
        raise ResultsUnreadable(f"{path} is not a CSV file in UTF-8")
    missing = [column for column in REQUIRED_COLUMNS if column not in header]
    if missing and ";" in header[0]:
        raise ResultsUnreadable(
            f"{path} is separated by ';' and not by ','",
            "Save it with ',' between the fields and numbers like 1234.5.",
        )
    if missing:
        raise ResultsUnreadable(f"{path} has no column {', '.join(missing)}")
    twice = [column for column in PARSERS if header.count(column) > 1]
    if twice:
        raise ResultsUnreadable(f"{path} has more than one column {', '.join(twice)}")
    return header


def _read_line(where: str, header: list[str], line: _Line) -> RunRecord:
    if line.fault:
        raise RowFault(line.fault)
    if len(line.cells) == len(header):
        version = line.cells[header.index("schema_version")]
        _check_version(where, parse_cell("schema_version", version))
    record = parse_row(header, line.cells)
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
