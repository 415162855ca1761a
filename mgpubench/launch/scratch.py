"""The folder through which parent and workers exchange results, errors and progress."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from mgpubench.errors import RunFailed

MIN_SCRATCH_BYTES = 2**18
"""Results of ranks and their errors go through files, of some kB each."""


def make_scratch() -> Path:
    """A fresh folder that only this user may read.

    Raises:
        RunFailed: if there is no place for it.
    """
    try:
        return Path(tempfile.mkdtemp(prefix="mgpubench-"))
    except OSError as error:
        raise RunFailed(
            f"no folder for temporary files can be made: {error.strerror}",
            "Give one with space left in TMPDIR.",
        ) from error


def check_space(scratch: Path) -> None:
    """Blame a full disk for what it does to everything else.

    Raises:
        RunFailed: if hardly anything can be written there any more.
    """
    if shutil.disk_usage(scratch).free < MIN_SCRATCH_BYTES:
        raise RunFailed(
            f"no space is left for temporary files in {scratch.parent}",
            "Make room there, or give another folder in TMPDIR.",
        )
