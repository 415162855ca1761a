"""Result files, reading side: every run that can be trusted, and a warning for all else.

Files that can be read are used beside others that cannot; only if nothing can be read is that an
error. `rows` knows a single line, `results` writes what is read here.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from mgpubench.errors import NoUsableResults, ResultsUnreadable
from mgpubench.records import SCHEMA_VERSION, RunRecord
from mgpubench.results import RUNS_CSV
from mgpubench.rows import PARSERS, REQUIRED_COLUMNS, RowFault, is_text, parse_cell, parse_row

_SESSION_NAME = re.compile(r"\d{8}T\d{6}Z-")


@dataclass(frozen=True, slots=True)
class Reading:
    """The runs that were read, and a line for each thing that was left out."""

    records: list[RunRecord]
    warnings: list[str]


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
    return _merge(readings, [refusal.message for refusal in refusals])


def newest_session(root: Path) -> tuple[Path, int]:
    """The newest session folder under `root` that has an ok run, and how many others there are.

    Raises:
        ResultsUnreadable: if there is no session.
        NoUsableResults: if no session has an ok run.
    """
    folders = [file.parent for file in _find_files(root)]
    # A folder that somebody named (an example, a copy) is never the newest.
    folders.sort(key=lambda folder: (_is_session(folder), folder.name))
    for folder in reversed(folders):
        with suppress(ResultsUnreadable):
            if any(record.is_ok for record in read_runs(folder / RUNS_CSV).records):
                return folder, sum(map(_is_session, folders)) - _is_session(folder)
    raise NoUsableResults(
        f"no results in {root}: no session there has a run that succeeded",
        "See the column `error` in runs.csv for the reason.",
    )


def _is_session(folder: Path) -> bool:
    return bool(_SESSION_NAME.match(folder.name))


def read_runs(path: Path) -> Reading:
    """Read one runs.csv.

    Raises:
        ResultsUnreadable: if it is no such file, or has rows and none of them can be used.
    """
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            return _read_lines(path, _split(file))
    except OSError as error:
        raise ResultsUnreadable(f"{path} cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class _Line:
    """One record of a CSV file, which may go over several lines of text."""

    place: str
    cells: list[str]
    fault: str


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
    if os.path.isfile(path / RUNS_CSV):
        return [path / RUNS_CSV]
    try:
        children = sorted(path.iterdir())
    except OSError as error:
        raise ResultsUnreadable(f"{path} cannot be read: {error.strerror}") from error
    files = [child / RUNS_CSV for child in children if os.path.isfile(child / RUNS_CSV)]
    if not files:
        raise ResultsUnreadable(
            f"{path} has no sessions: no {RUNS_CSV} in it, nor in a folder in it",
            f"Name a session folder, a folder of sessions, or a {RUNS_CSV}.",
        )
    return files


def _sum_up(refusals: Sequence[ResultsUnreadable]) -> ResultsUnreadable:
    first, others = refusals[0], len(refusals) - 1
    more = f" (and {others} more that cannot be used)" if others else ""
    return ResultsUnreadable(first.message + more, first.hint)


def _merge(readings: dict[Path, Reading], warnings: list[str]) -> Reading:
    """All runs, each once: a copied session, or a copied line, would count everything twice."""
    records: list[RunRecord] = []
    seen: set[str] = set()
    for path, reading in readings.items():
        made = _last_attempts(reading.records)
        distinct = _distinct(made)
        fresh = [record for record in distinct if record.run_id not in seen]
        warnings += reading.warnings
        if repeats := len(made) - len(distinct):
            warnings.append(
                f"{path}: left out {repeats} lines that repeat or contradict another one of the "
                "same run_id"
            )
        if known := len(distinct) - len(fresh):
            warnings.append(
                f"{path}: left out {known} of {len(reading.records)} runs, whose run_id was "
                "read from another file already"
            )
        records += fresh
        seen.update(record.run_id for record in fresh if record.run_id)
    return Reading(records, warnings)


def _last_attempts(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Without the failures of runs that a resumed session made again."""
    last = {record.run_id: place for place, record in enumerate(records)}
    return [
        record
        for place, record in enumerate(records)
        if record.is_ok or not record.run_id or place == last[record.run_id]
    ]


def _distinct(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Without repetitions of one run; runs that have no id cannot be told apart, and stay.

    Of runs with the same id and other figures nobody knows which is right: none is used.
    """
    kept = dict.fromkeys(record for record in records if record.run_id)  # in their order
    times = Counter(record.run_id for record in kept)
    without_id = [record for record in records if not record.run_id]
    return [*(record for record in kept if times[record.run_id] == 1), *without_id]


def _split(file: TextIO) -> Iterator[_Line]:
    """The records of a file that are not blank, with the lines on which they stand."""
    # strict: after a lost quotation mark, a lenient reader may join two runs into one.
    reader = csv.reader(file, strict=True)
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
            yield _Line(place, cells, fault)


def _read_lines(path: Path, lines: Iterator[_Line]) -> Reading:
    header = _read_header(path, next(lines, None))
    records: list[RunRecord] = []
    warnings: list[str] = []
    first_fault = ""
    for line in lines:
        where = f"{path}: {line.place}"
        if line.cells == header:
            warnings.append(f"{where}: the header once more; skipped")
            continue
        try:
            records.append(_read_line(where, header, line))
        except RowFault as fault:
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
            "Save it again with ',' between the fields and numbers like 1234.5.",
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
    return parse_row(header, line.cells)


def _check_version(where: str, version: object) -> None:
    """Ahead of all other columns, whose meaning may be another in a newer file."""
    if version != SCHEMA_VERSION:
        raise ResultsUnreadable(
            f"{where}: unknown schema_version {version}; this mgpubench reads {SCHEMA_VERSION}",
            "Another version of mgpubench wrote this file; update this one.",
        )
