"""Names of checkpoints, and the room that they need."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from mgpubench.errors import RequestRefused, RunFailed
from mgpubench.launch.scratch import check_space
from mgpubench.results.checkpoint_files import (
    best_checkpoint,
    check_room,
    expected_bytes,
    file_name,
    find_checkpoints,
    latest_checkpoint,
    remove_unfinished,
)
from mgpubench.results.whole_file import write_whole

FOREIGN = (
    *("epoch-1.pt", "epoch-00003.pt", "epoch-0001.pt.bak", "epoch-last.pt", "notes.txt"),
    *("my-epoch-0009.pt", ".epoch-0009.pt", ".epoch-last.pt.part", ".other.pt.part"),
)


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(b"")


def test_names_sort_by_epoch() -> None:
    assert file_name(1) == "epoch-0001.pt"
    assert file_name(12345) == "epoch-12345.pt"


def test_checkpoints_are_found_by_epoch_among_other_files(tmp_path: Path) -> None:
    make(tmp_path, *map(file_name, (12000, 2, 900)), *FOREIGN)
    (tmp_path / file_name(5)).mkdir()
    assert list(find_checkpoints(tmp_path)) == [2, 900, 12000]
    assert latest_checkpoint(tmp_path) == tmp_path / "epoch-12000.pt"


def test_a_folder_that_is_empty_or_missing_has_no_latest_one(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("best", "name"), [(2, "epoch-0002.pt"), (None, "epoch-0003.pt"), (1, "epoch-0003.pt")]
)
def test_the_best_checkpoint_is_the_one_that_the_latest_names_if_it_is_there(
    tmp_path: Path, best: int | None, name: str
) -> None:
    make(tmp_path, file_name(2), file_name(3))
    asked = []

    def best_epoch(checkpoint: Path) -> int | None:
        asked.append(checkpoint.name)
        return best

    assert best_checkpoint(tmp_path, best_epoch) == tmp_path / name
    assert asked == ["epoch-0003.pt"]


def test_a_folder_without_checkpoints_has_no_best_one(tmp_path: Path) -> None:
    assert best_checkpoint(tmp_path, lambda checkpoint: 1) is None


def test_only_unfinished_checkpoints_are_removed(tmp_path: Path) -> None:
    make(tmp_path, file_name(1), *FOREIGN)
    with write_whole(tmp_path / file_name(2)) as file:
        unfinished = Path(file.name)
    (tmp_path / file_name(2)).rename(unfinished)  # as a killed process leaves it
    assert remove_unfinished(tmp_path) == (unfinished,)
    assert {path.name for path in tmp_path.iterdir()} == {file_name(1), *FOREIGN}
    assert remove_unfinished(tmp_path / "missing") == ()


def test_room_for_two_checkpoints_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        shutil, "disk_usage", lambda place: SimpleNamespace(total=2**30, free=200 * 2**20)
    )
    folder = tmp_path / "not" / "yet"
    check_room(folder, 100 * 2**20)
    with pytest.raises(RequestRefused, match="200 MB are free, and two checkpoints need 202 MB"):
        check_room(folder, 101 * 2**20)
    assert not folder.parent.exists()


def test_a_disk_that_does_not_say_how_large_it_is_is_not_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(total=0, free=0))
    check_room(tmp_path, 2**40)
    check_space(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(total=2**30, free=0))
    with pytest.raises(RunFailed, match="no space is left"):
        check_space(tmp_path)


@pytest.mark.parametrize(("optimizer", "tensors"), [("sgd", 2), ("adam", 3), ("adamw", 3)])
def test_a_checkpoint_has_the_weights_and_what_the_optimizer_keeps(
    optimizer: str, tensors: int
) -> None:
    weights = 100 * 2**20
    assert tensors * weights < expected_bytes(weights, optimizer) < (tensors + 0.1) * weights
