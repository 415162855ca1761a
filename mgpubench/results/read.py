"""Reading runs: every run that can be trusted, and a warning for everything else.

Files that can be read are used even if others cannot. It is an error only if nothing can be read.
`csv_reader` reads a file, `parse` a line of it, and `session_folder` writes what is read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mgpubench.errors import ResultsUnreadable
from mgpubench.results.csv_reader import read_records
from mgpubench.results.find import find_all, find_files, sum_up
from mgpubench.results.merge import Reading, merge
from mgpubench.results.parse import RUN_ROWS
from mgpubench.results.schema import RunRecord
from mgpubench.results.session_folder import RUNS_CSV

_SESSION_NAME = re.compile(r"(\d{8}T\d{6}Z)-")
_MOMENT = "%Y%m%dT%H%M%SZ"

CLOCK_TOLERANCE = timedelta(minutes=5)
"""The clocks of two machines that share a folder may differ by so much."""


def read_sessions(paths: Sequence[Path]) -> Reading:
    """Read session folders, roots of sessions and runs.csv files, each file once.

    Raises:
        ResultsUnreadable: if nothing in any of the paths can be read.
    """
    files, refusals = find_all(paths, RUNS_CSV)
    readings: dict[Path, Reading] = {}
    for file in files:
        try:
            readings[file] = read_runs(file)
        except ResultsUnreadable as refusal:
            refusals.append(refusal)
    if refusals and not readings:
        raise sum_up(refusals)
    return merge(readings, [refusal.message for refusal in refusals])


def sessions_newest_first(root: Path) -> Iterator[tuple[Path, list[RunRecord]]]:
    """The session folders under `root` that can be read, with their runs.

    Raises:
        ResultsUnreadable: if there is no session.
    """
    folders = [file.parent for file in find_files(root, RUNS_CSV)]
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
    folders = [file.parent for file in find_files(root, RUNS_CSV)]
    return [folder for folder in folders if is_from_future(folder)]


def count_sessions(root: Path) -> int:
    """How many session folders are under `root`, without those with a name of their own."""
    return sum(_is_session(file.parent) for file in find_files(root, RUNS_CSV))


def _is_session(folder: Path) -> bool:
    return bool(_SESSION_NAME.match(folder.name))


def read_runs(path: Path) -> Reading:
    """Read one runs.csv.

    Raises:
        ResultsUnreadable: if it is not such a file, or none of its rows can be used.
    """
    return Reading(*read_records(path, RUN_ROWS))
