"""Finding the result files in paths: folders of one session, and roots of many."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from mgpubench.errors import ResultsUnreadable
from mgpubench.results.session_folder import RUNS_CSV
from mgpubench.results.training import EPOCHS_CSV

EXAMPLE = "example"
"""The published session in `results`: used if it is named, or if there is nothing else."""

_CONTENTS = {RUNS_CSV: "session", EPOCHS_CSV: "training"}
"""What a folder with such a file is called."""


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
            f"Name the folder of a {_CONTENTS[name]}, a folder of {_CONTENTS[name]}s, or a {name}.",
        )
    return files


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
