"""The folder of a session, with session.json, runs.csv and steps.csv: made, locked, appended to.

The columns are the fields of `RunRecord` and `StepRecord`. Rows are on the disk before `append`
returns, and steps before their run, so that every row of runs.csv has its steps. `read` is the
reading side.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from mgpubench.config.digest import hex_digits
from mgpubench.errors import RequestRefused
from mgpubench.format import shell_path
from mgpubench.results.comm import COMM_CSV
from mgpubench.results.csv_format import append_records, open_text, write_rows
from mgpubench.results.schema import SCHEMA_VERSION, RunRecord, StepRecord
from mgpubench.results.training import EPOCHS_CSV
from mgpubench.results.whole_file import write_whole

RUNS_CSV = "runs.csv"
STEPS_CSV = "steps.csv"
SESSION_JSON = "session.json"

DIGEST = "digest"
"""Key in session.json for the digest of all other keys."""

RUN_COLUMNS = tuple(field.name for field in fields(RunRecord))
STEP_COLUMNS = tuple(field.name for field in fields(StepRecord))

COLUMNS = {STEPS_CSV: STEP_COLUMNS, RUNS_CSV: RUN_COLUMNS}


@dataclass(frozen=True, slots=True)
class Session:
    """An open session: its id, and its folder, to which no other process may write."""

    id: str
    folder: Path
    lock: int
    """A file descriptor of session.json, which stays locked until the session is closed."""
    repairs: tuple[str, ...] = ()
    """What had to be repaired in its files when it was reopened, one line each."""

    def __enter__(self) -> Session:
        """The session itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Unlock the folder."""
        os.close(self.lock)

    def append(self, record: RunRecord, steps: Iterable[StepRecord]) -> None:
        """Write one run, its steps first.

        Raises:
            BenchError: if the disk refuses. There is then no row of this run, nor half of one.
        """
        append_records(self.folder / STEPS_CSV, STEP_COLUMNS, steps)
        append_records(self.folder / RUNS_CSV, RUN_COLUMNS, [record])

    def append_to(self, name: str, records: Iterable[object]) -> None:
        """Write rows to one of the session's files.

        Raises:
            BenchError: if the disk refuses.
        """
        records = list(records)
        if records:
            columns = [column.name for column in fields(records[0])]  # type: ignore[arg-type]
            append_records(self.folder / name, columns, records)

    def amend(self, key: str, value: object) -> bool:
        """Add a value to a list in session.json, when the session ends.

        False if the file cannot be written, or is not as it was made: an edit must stay visible.
        """
        path = self.folder / SESSION_JSON
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document.pop(DIGEST, "") != digest_of(document):
                return False
            document[key] = [*document.get(key, []), value]
            with write_whole(path) as file:
                file.write(_to_json({**document, DIGEST: digest_of(document)}))
                lock = os.dup(file.fileno())
                _lock_file(lock)
            # The new file is locked before it has its name, and the old one until then.
            os.dup2(lock, self.lock)
            os.close(lock)
        except (OSError, ValueError):
            return False
        return True

    def keep_steps_of(self, run_ids: Collection[str]) -> None:
        """Leave the steps of all other runs out of steps.csv, in one stroke.

        Raises:
            RequestRefused: if the file cannot be written.
        """
        path = self.folder / STEPS_CSV
        kept = {run_id.encode() for run_id in run_ids}
        with _refusing(self.folder), open(path, "rb") as old, write_whole(path) as new:
            new.write(old.readline())
            new.writelines(line for line in old if line.partition(b",")[0] in kept)


def check_writable(out: Path) -> None:
    """Refuse a place where no session folder could be made. It makes nothing itself.

    Raises:
        RequestRefused: if `out`, or the nearest folder above it that exists, cannot be written.
    """
    nearest = _nearest_existing(out)
    if session := next(filter(_is_session, (out, *out.absolute().parents)), None):
        raise RequestRefused(
            f"results cannot be written to {out}: {session} is the folder of a session, and "
            "compare would not find one in it",
            f"Give a folder for sessions, such as --out {shell_path(session.parent)}",
        )
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


def _nearest_existing(out: Path) -> Path:
    """`out`, or the first folder above it that exists."""
    try:
        places = (out, *out.absolute().parents)
    except OSError as error:
        raise RequestRefused(
            f"results cannot be written to {out}: the current folder no longer exists",
            "Change to another folder.",
        ) from error
    # lexists and not exists: a dangling symbolic link is in the way too.
    return next(place for place in places if os.path.lexists(place))


def _is_session(folder: Path) -> bool:
    # Not Path.exists, which raises where nothing may be read.
    has_rows = any(os.path.exists(folder / name) for name in (RUNS_CSV, EPOCHS_CSV, COMM_CSV))
    return has_rows and os.path.exists(folder / SESSION_JSON)


def digest_of(document: Mapping[str, object]) -> str:
    """16 hex digits by which session.json shows whether it was edited."""
    # From the text that is read back: JSON knows no tuples.
    text = _to_json(json.loads(_to_json(document)))
    return hex_digits(hashlib.sha256(text).digest(), 16)


def _to_json(document: Mapping[str, object]) -> bytes:
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode(errors="backslashreplace")


def open_session(
    out: Path,
    document: dict[str, object],
    now: datetime,
    files: Mapping[str, Sequence[str]] = COLUMNS,
) -> Session:
    """Make a new session folder under `out`, with session.json and two CSV files with a header.

    Raises:
        RequestRefused: if the folder or a file in it cannot be made.
    """
    folder = None
    try:
        folder = _make_folder(out, now)
        about = {"schema_version": SCHEMA_VERSION, "session_id": folder.name, **document}
        with write_whole(folder / SESSION_JSON) as file:
            file.write(_to_json({**about, DIGEST: digest_of(about)}))
        for name, columns in files.items():
            with open_text(folder / name, "x") as file:
                write_rows(file, [columns])
        return Session(folder.name, folder, _lock(folder))
    except OSError as error:
        if folder is not None:  # it is ours, and still empty
            shutil.rmtree(folder, ignore_errors=True)
        raise RequestRefused(
            f"results cannot be written to {out}: {error.strerror}",
            "Give another folder with --out.",
        ) from error


def reopen_session(
    folder: Path, session_id: str, files: Mapping[str, Sequence[str]] = COLUMNS
) -> Session:
    """Reopen a session, so that rows can be added to it.

    An unfinished last line of its files is removed first.

    Raises:
        RequestRefused: if another process is writing to it, if another program has changed its
            columns, or if it cannot be written.
    """
    with _refusing(folder):
        lock = _lock(folder)
    try:
        repairs = _repair_files(folder, files)
    except BaseException:
        os.close(lock)
        raise
    return Session(session_id, folder, lock, repairs)


@contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RequestRefused(
            f"{folder} cannot be written: {error.strerror}", "Change its permissions, or make room."
        ) from error


def _lock(folder: Path) -> int:
    # session.json exists as long as the session does. `amend` passes the lock on.
    file = os.open(folder / SESSION_JSON, os.O_RDWR)
    try:
        _lock_file(file)
    except BlockingIOError:
        os.close(file)
        raise RequestRefused(
            f"another mgpubench is writing to {folder}", "Wait until it has finished."
        ) from None
    return file


def _lock_file(file: int) -> None:
    """Lock a file by its descriptor.

    Raises:
        BlockingIOError: if another process has locked it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return  # a file system without locks


def _repair_files(folder: Path, files: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    repairs: list[str] = []
    with _refusing(folder):
        for name, columns in files.items():
            repairs += _repair(folder / name, columns)
    return tuple(repairs)


def _repair(path: Path, columns: Sequence[str]) -> Iterator[str]:
    """Make a file begin with its header and end with a whole line; say what was removed."""
    path.touch()
    if not path.is_file():
        raise RequestRefused(f"{path} is not a file", "Start a new session.")
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
        yield f"{path}: the last line was unfinished, and was removed"
    if not whole:
        with open_text(path, "a") as file:
            write_rows(file, [columns])
    else:
        _check_header(path, content.partition(b"\n")[0], columns)


def _check_header(path: Path, header: bytes, columns: Sequence[str]) -> None:
    if header != ",".join(columns).encode():
        raise RequestRefused(
            f"{path} does not have the columns it was made with, so no row can be added",
            "Another program has written to it. mgpubench compare may still read it.",
        )


def _make_folder(out: Path, now: datetime) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    moment = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    while True:
        folder = out / f"{moment}-{secrets.token_hex(3)}"
        # A folder that exists belongs to another session: try another id.
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
