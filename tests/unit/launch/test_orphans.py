"""A worker knows when its parent has ended, and does not mistake other errors for that."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from mgpubench.launch.orphans import outlives


def test_a_file_that_is_gone_or_not_locked_means_that_the_parent_has_ended(
    tmp_path: Path,
) -> None:
    lock = tmp_path / "parent.lock"
    assert outlives(lock)
    lock.touch()
    assert outlives(lock)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO, errno.EMFILE])
def test_a_file_that_cannot_be_locked_is_no_sign_of_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    lock = tmp_path / "parent.lock"
    lock.touch()

    def flock(file: object, operation: int) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(fcntl, "flock", flock)
    assert not outlives(lock)
