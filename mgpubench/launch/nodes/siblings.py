"""The processes that a starter makes on one machine: one is the agent, and the others wait."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mgpubench.errors import RunFailed

AGENT_BEGINS_S = 60.0
"""For the agent to begin, after this process."""
LOOK_S = 0.1


def _lock_file(key: str) -> Path:
    return Path(tempfile.gettempdir()) / f"mgpubench-{os.getuid()}-{key}.lock"


@contextlib.contextmanager
def as_agent(key: str) -> Iterator[None]:
    """Keep the other processes of this machine waiting."""
    path = _lock_file(key)
    # Not through a link that someone else may have put there.
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(held)


def wait_for_agent(key: str) -> None:
    """Wait until the agent of this machine has ended.

    Raises:
        RunFailed: if it never begins.
    """
    until_s = time.monotonic() + AGENT_BEGINS_S
    path = _lock_file(key)
    while time.monotonic() < until_s:
        with contextlib.suppress(FileNotFoundError), path.open("rb") as lock:
            if not _is_free(lock.fileno()):
                fcntl.flock(lock, fcntl.LOCK_SH)  # until the agent lets go, or dies
                return
        time.sleep(LOOK_S)
    raise RunFailed(
        f"the first process of this machine has not begun within {AGENT_BEGINS_S:.0f} s",
        "Do the processes of a machine share the folder for temporary files (TMPDIR)?",
    )


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(lock, fcntl.LOCK_UN)
    return True
