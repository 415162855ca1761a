"""Result files, writing side: one folder a session, with session.json, runs.csv and steps.csv.

The columns are the fields of `RunRecord` and `StepRecord`. Rows are on the disk before `append`
returns, steps before their run, so that whatever happens next a row in runs.csv has its steps.
CSV is UTF-8 with `,`, `.` and one header, whatever the locale. `reader` is the other side.
"""

from __future__ import annotations

import csv
import fcntl
import json
import math
import os
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Literal, TextIO

from mgpubench.errors import BenchError, RequestRefused
from mgpubench.results.schema import SCHEMA_VERSION, RunRecord, StepRecord

RUNS_CSV = "runs.csv"
STEPS_CSV = "steps.csv"
SESSION_JSON = "session.json"

RUN_COLUMNS = tuple(field.name for field in fields(RunRecord))
STEP_COLUMNS = tuple(field.name for field in fields(StepRecord))

COLUMNS = {STEPS_CSV: STEP_COLUMNS, RUNS_CSV: RUN_COLUMNS}

_CELL_SAFE = str.maketrans({"\r": " ", "\n": " ", "\0": "\N{REPLACEMENT CHARACTER}"})
"""One row is one line, so that half a row is never more than the last line of a file."""


@dataclass(frozen=True, slots=True)
class Session:
    """An open session: its id and its folder, which no other process may write to."""

    id: str
    folder: Path
    lock: int
    """A file descriptor of session.json, which is locked until the session is closed."""
    repairs: tuple[str, ...] = ()
    """What had to be mended in its files as it was opened again, a line each."""

    def __enter__(self) -> Session:
        """The session itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Let other processes have it."""
        os.close(self.lock)

    def append(self, record: RunRecord, steps: Iterable[StepRecord]) -> None:
        """Write one run, its steps first.

        Raises:
            BenchError: if the disk refuses; there is then no row of this run, nor half of one.
        """
        _append(self.folder / STEPS_CSV, STEP_COLUMNS, steps)
        _append(self.folder / RUNS_CSV, RUN_COLUMNS, [record])

    def keep_steps_of(self, run_ids: Collection[str]) -> None:
        """Leave out the steps of all other runs, in one stroke: they will be made again.

        Raises:
            RequestRefused: if the file cannot be written.
        """
        path = self.folder / STEPS_CSV
        temporary = path.with_name(f".{path.name}.part")
        kept = {run_id.encode() for run_id in run_ids}
        with _refusing(self.folder):
            try:
                with open(path, "rb") as old, open(temporary, "wb") as new:
                    new.write(old.readline())
                    new.writelines(line for line in old if line.partition(b",")[0] in kept)
                    new.flush()
                    os.fsync(new.fileno())
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)


def check_writable(out: Path) -> None:
    """Refuse a place in which no session folder could be made; makes nothing.

    Raises:
        RequestRefused: if `out`, or the nearest folder above it that exists, cannot be written.
    """
    try:
        places = (out, *out.absolute().parents)
    except OSError as error:
        raise RequestRefused(
            f"results cannot be written to {out}: the current folder does not exist any more",
            "Change to another folder.",
        ) from error
    # lexists and not exists: a dangling symbolic link is in the way too.
    nearest = next(place for place in places if os.path.lexists(place))
    if not nearest.is_dir():
        raise RequestRefused(
            f"results cannot be written to {out}: {nearest} is not a folder",
            "Give another folder with --out.",
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise RequestRefused(
            f"results cannot be written to {out}: {nearest} is not writable",
            "Give another folder with --out, or change its permissions.",
        )


def open_session(out: Path, document: dict[str, object], now: datetime) -> Session:
    """Make a fresh session folder under `out`, with session.json and two CSV files of one header.

    Raises:
        RequestRefused: if the folder or a file in it cannot be made.
    """
    folder = None
    try:
        folder = _make_folder(out, now)
        about = {"schema_version": SCHEMA_VERSION, "session_id": folder.name, **document}
        _write_json(folder / SESSION_JSON, about)
        for name, columns in COLUMNS.items():
            with _open_text(folder / name, "x") as file:
                write_rows(file, [columns])
        return Session(folder.name, folder, _lock(folder))
    except OSError as error:
        if folder is not None:  # it is ours, and nothing is in it yet
            shutil.rmtree(folder, ignore_errors=True)
        raise RequestRefused(
            f"results cannot be written to {out}: {error.strerror}",
            "Give another folder with --out.",
        ) from error


def reopen_session(folder: Path, session_id: str) -> Session:
    """Open a session that was broken off, so that rows can be added to it.

    Whatever its files have behind their last whole line goes first.

    Raises:
        RequestRefused: if another process is at work in it, or another program has changed its
            columns, or it cannot be written.
    """
    with _refusing(folder):
        lock = _lock(folder)
    try:
        with _refusing(folder):
            repairs = [
                repair
                for name, columns in COLUMNS.items()
                for repair in _mend(folder / name, columns)
            ]
    except BaseException:
        os.close(lock)
        raise
    return Session(session_id, folder, lock, tuple(repairs))


@contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RequestRefused(
            f"{folder} cannot be written: {error.strerror}", "Change its permissions, or make room."
        ) from error


def _lock(folder: Path) -> int:
    # session.json is there as long as the session is, and nobody writes it again.
    file = os.open(folder / SESSION_JSON, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise RequestRefused(
            f"another mgpubench is at work in {folder}", "Wait until it has ended."
        ) from None
    except OSError:
        pass  # a file system without locks
    return file


def _mend(path: Path, columns: Sequence[str]) -> Iterator[str]:
    """Let a file end with a whole line, and begin with its header."""
    path.touch()
    if not path.is_file():
        raise RequestRefused(f"{path} is no file", "Make a new session.")
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
        yield f"{path}: the last line was not finished, and is left out"
    header = ",".join(columns)
    if not whole:
        with _open_text(path, "a") as file:
            write_rows(file, [columns])
    elif content.partition(b"\n")[0] != header.encode():
        raise RequestRefused(
            f"{path} has not the columns with which it was made, so that no row can be added",
            "Another program has written it; mgpubench compare may still read it.",
        )


FORMULA_SIGNS = ("=", "+", "-", "@", "\t")
"""With these at the start a spreadsheet would run a text as a formula."""


def format_cell(value: object) -> str:
    """A value as a CSV cell: unknown is empty, a float has all its digits.

    A text that a spreadsheet would run gets an apostrophe in front, by which it knows a text.

    Raises:
        ValueError: for NaN and infinity, which are a bug of ours and never a result.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} must not get into a result file")
        # float.__repr__, because numpy's own floats have another one.
        return float.__repr__(value)
    text = str(value).translate(_CELL_SAFE)
    return f"'{text}" if isinstance(value, str) and is_formula(text) else text


def is_formula(text: str) -> bool:
    """True for what a spreadsheet would run, also behind apostrophes, so that one can be taken off.

    The reader takes off the one that `format_cell` puts in front.
    """
    return text.lstrip("'").startswith(FORMULA_SIGNS)


def write_rows(file: TextIO, rows: Iterable[Iterable[object]]) -> None:
    """Write rows of values as CSV: RFC 4180 quoting, lines that end with a line feed."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([format_cell(value) for value in row] for row in rows)


def _make_folder(out: Path, now: datetime) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    moment = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    while True:
        folder = out / f"{moment}-{secrets.token_hex(3)}"
        # A folder that is there belongs to somebody else: try another id.
        with suppress(FileExistsError):
            folder.mkdir()
            return folder


def _write_json(path: Path, document: dict[str, object]) -> None:
    """All of the file or nothing of it: a reader never meets half a document."""
    temporary = path.with_name(f".{path.name}.part")
    with _open_text(temporary, "x") as file:
        json.dump(document, file, indent=2, ensure_ascii=False, allow_nan=False)
        file.write("\n")
    os.replace(temporary, path)


def _append(path: Path, columns: Sequence[str], records: Iterable[RunRecord | StepRecord]) -> None:
    values = attrgetter(*columns)
    with _all_or_nothing(path), _open_text(path, "a") as file:
        write_rows(file, (values(record) for record in records))
        file.flush()
        os.fsync(file.fileno())


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


def _open_text(path: Path, mode: Literal["x", "a", "w"]) -> TextIO:
    # backslashreplace: a file name that is not UTF-8 must not cost the run that it belongs to.
    return open(path, mode, encoding="utf-8", errors="backslashreplace", newline="")
