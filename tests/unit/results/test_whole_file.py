"""A file is replaced whole, or stays as it was."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

import pytest

from mgpubench.results.whole_file import sync_folder, write_whole


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with its old content."""
    file = tmp_path / "file.json"
    file.write_bytes(b"old")
    return file


@pytest.mark.parametrize("durable", [True, False])
def test_the_file_has_its_old_content_until_all_is_written(path: Path, durable: bool) -> None:
    with write_whole(path, durable=durable) as file:
        file.write(b"new " * 10_000)
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new " * 10_000
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_not_there_yet_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with write_whole(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
        file.write(b" and half")
    assert path.read_bytes() == b"half and half"


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt])
@pytest.mark.parametrize("exists", [True, False])
def test_after_an_error_the_old_file_stays_and_nothing_else_is_left(
    path: Path, error: type[BaseException], exists: bool
) -> None:
    if not exists:
        path.unlink()

    def fail() -> None:
        with write_whole(path) as file:
            file.write(b"half")
            file.flush()
            raise error

    with pytest.raises(error):
        fail()
    assert [found.read_bytes() for found in path.parent.iterdir()] == ([b"old"] if exists else [])


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_refuses_at_the_end_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(OSError, match="no"), write_whole(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(("durable", "synced"), [(True, ["file", "folder"]), (False, [])])
def test_only_what_must_be_durable_waits_for_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool, synced: list[str]
) -> None:
    """First the content, and after the renaming the name."""
    calls = []

    def fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        assert path.read_bytes() == (b"new" if is_folder else b"old")
        calls.append("folder" if is_folder else "file")

    monkeypatch.setattr(os, "fsync", fsync)
    with write_whole(path, durable=durable) as file:
        file.write(b"new")
    assert calls == synced


@pytest.mark.parametrize(("number", "is_raised"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_need_not_be_able_to_make_names_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_raised: bool
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="no") if is_raised else contextlib.nullcontext():
        sync_folder(tmp_path)
