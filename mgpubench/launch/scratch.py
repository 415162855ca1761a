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
"""Results and errors of ranks are files of some kB each."""

HINT = "Make room there, or set TMPDIR to another folder."

FILES_TO_START = 32
"""For pipes, locks and logs of the parent and the fork server. Torch needs more."""


def check_limits() -> None:
    """Refuse a limit under which no process could be started or report an error.

    Raises:
        RunFailed: naming the limit.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FILES_TO_START:
        raise RunFailed(
            f"only {soft} files may be open at once, and mgpubench needs {FILES_TO_START}",
            "Raise the limit: ulimit -n 65536.",
        )


def make_scratch() -> Path:
    """A new folder that only this user may read.

    Raises:
        RunFailed: if it cannot be made.
    """
    try:
        return Path(tempfile.mkdtemp(prefix="mgpubench-"))
    except OSError as error:
        raise RunFailed(
            f"no folder for temporary files can be made: {error.strerror}",
            "Set TMPDIR to a folder with space left.",
        ) from error


def check_space(scratch: Path) -> None:
    """Report a full or missing disk as such, before its consequences are reported.

    Raises:
        RunFailed: if there is almost no space left.
    """
    with in_scratch(scratch):
        usage = shutil.disk_usage(scratch)
    # Some file systems do not say how large they are: all is 0.
    if usage.total and usage.free < MIN_SCRATCH_BYTES:
        raise RunFailed(f"no space is left for temporary files in {scratch.parent}", HINT)


@contextmanager
def in_scratch(scratch: Path) -> Iterator[None]:
    """Report errors of files in the scratch folder.

    Raises:
        RunFailed: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise RunFailed(
            f"temporary files in {scratch} cannot be used: {error.strerror}", HINT
        ) from error
