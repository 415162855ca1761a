"""The folder through which parent and workers exchange results, errors and progress."""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mgpubench.errors import RunFailed

MIN_SCRATCH_BYTES = 2**18
"""Results of ranks and their errors go through files, of some kB each."""


HINT = "Make room there, or give another folder in TMPDIR."


MIN_OPEN_FILES = 32
"""For pipes, locks and logs of the parent and the fork server; torch needs more of its own."""


def check_limits() -> None:
    """Refuse a limit under which nothing could be started, nor told of it.

    Raises:
        RunFailed: naming the limit.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < MIN_OPEN_FILES:
        raise RunFailed(
            f"only {soft} files may be open at once, and mgpubench needs {MIN_OPEN_FILES}",
            "Raise the limit: ulimit -n 65536.",
        )


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
    """Blame a full disk, or one that is gone, for what it does to everything else.

    Raises:
        RunFailed: if hardly anything can be written there any more.
    """
    with in_scratch(scratch):
        free_bytes = shutil.disk_usage(scratch).free
    if free_bytes < MIN_SCRATCH_BYTES:
        raise RunFailed(f"no space is left for temporary files in {scratch.parent}", HINT)


@contextmanager
def in_scratch(scratch: Path) -> Iterator[None]:
    """Tell an error that files in the scratch folder raise.

    Raises:
        RunFailed: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise RunFailed(
            f"temporary files in {scratch} cannot be used: {error.strerror}", HINT
        ) from error
