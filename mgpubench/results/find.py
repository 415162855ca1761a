"""Finding the result files in paths: folders of one session, and roots of many."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mgpubench.errors import ResultsUnreadable
from mgpubench.format import shell_path
from mgpubench.results.comm import COMM_CSV
from mgpubench.results.session_folder import RUNS_CSV
from mgpubench.results.training import EPOCHS_CSV

EXAMPLE = "example"
"""The published session in `results`: used if it is named, or if there is nothing else."""

_CONTENTS = {RUNS_CSV: "session", EPOCHS_CSV: "training"}
"""What a folder with such a file is called."""


def contents_of(path: Path) -> frozenset[str]:
    """Which result files are to be found in a path, by their names: those of runs, of trainings.

    The published example does not count beside anything else. Empty if there are none.
    """
    if not path.is_dir():
        names = [RUNS_CSV if path.name != EPOCHS_CSV else EPOCHS_CSV] if path.exists() else []
        return frozenset(names)
    found = {}
    for name in _CONTENTS:
        with suppress(ResultsUnreadable):
            found[name] = find_files(path, name)
    own = {
        name
        for name, files in found.items()
        if any(file.parent == path or file.parent.name != EXAMPLE for file in files)
    }
    return frozenset(own or found)


def find_all(paths: Sequence[Path], name: str) -> tuple[list[Path], list[ResultsUnreadable]]:
    """The files of a name in some paths, each once, and why the others have none."""
    files: dict[str, Path] = {}
    refusals = []
    for path in paths:
        try:
            for file in find_files(path, name):
                files.setdefault(os.path.realpath(file), file)
        except ResultsUnreadable as refusal:
            refusals.append(refusal)
    return list(files.values()), refusals


def find_files(path: Path, name: str) -> list[Path]:
    """The files of a name in a folder or in the folders in it; a path that is a file itself.

    Raises:
        ResultsUnreadable: if there is none.
    """
    if not os.path.lexists(path):
        raise ResultsUnreadable(
            f"{path}: no such file or folder", "Make results first with: mgpubench run"
        )
    if not path.is_dir():
        return [path]
    if has_file(path, name):
        return [path / name]
    try:
        children = sorted(path.iterdir())
    except OSError as error:
        raise ResultsUnreadable(f"{path} cannot be read: {error.strerror}") from error
    files = [child / name for child in children if has_file(child, name)]
    # It came with the repository, and was not measured here.
    own = [file for file in files if file.parent.name != EXAMPLE]
    files = own or files
    if not files:
        raise ResultsUnreadable(
            f"{path} has no {_CONTENTS[name]}s: no {name} in it, nor in a folder in it",
            _hint(path, children, name),
        )
    return files


def _hint(path: Path, children: Sequence[Path], name: str) -> str:
    """What to do about a folder without the files of a name."""
    if any(has_file(folder, COMM_CSV) for folder in (path, *children)):
        return f"It has collectives, which mgpubench comm has printed: see its {COMM_CSV}."
    for other, contents in _CONTENTS.items():
        if other != name and any(has_file(folder, other) for folder in (path, *children)):
            return f"It has {contents}s: mgpubench compare {shell_path(path)}"
    contents = _CONTENTS[name]
    return f"Name the folder of a {contents}, a folder of {contents}s, or a {name}."


def has_file(folder: Path, name: str) -> bool:
    """True also if that is hidden by permissions: reading the file will say why."""
    try:
        return stat.S_ISREG(os.stat(folder / name).st_mode)
    except PermissionError:
        return True
    except OSError:
        return False


def sum_up(refusals: Sequence[ResultsUnreadable]) -> ResultsUnreadable:
    """One error for several."""
    first, others = refusals[0], len(refusals) - 1
    more = f" (and {others} more that cannot be used)" if others else ""
    return ResultsUnreadable(first.message + more, first.hint)
