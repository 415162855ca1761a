"""Which checkpoint of a training is used, while the training removes old ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mgpubench.errors import RequestRefused
from mgpubench.launch.supervisor import Supervisor
from mgpubench.results.checkpoint_files import CHECKPOINTS, file_name
from mgpubench.session.checkpoints import MAX_TRIES, use_checkpoint


class Training:
    """A training that writes a checkpoint and removes the one before, when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / CHECKPOINTS
        self.folder.mkdir()
        self.epoch = 0
        self.go_on()

    def go_on(self) -> None:
        (self.folder / file_name(self.epoch)).unlink(missing_ok=True)
        self.epoch += 1
        (self.folder / file_name(self.epoch)).touch()

    def read(self, path: Path) -> str:
        """As a worker does that reads a checkpoint."""
        if not path.exists():
            raise RequestRefused(f"{path} does not exist")
        return path.name


class Reader:
    """A supervisor whose workers are so slow that the training goes on `times` times meanwhile."""

    def __init__(self, training: Training, times: int) -> None:
        self.training = training
        self.left = times
        self.calls = 0

    def call(self, target: str, path: Path) -> SimpleNamespace:
        self.calls += 1
        if self.left:
            self.left -= 1
            self.training.go_on()
        self.training.read(path)
        return SimpleNamespace(best=None)

    def use(self, folder: Path) -> Any:
        return use_checkpoint(cast(Supervisor, self), folder, self.training.read)


def test_a_checkpoint_that_was_removed_is_chosen_again(tmp_path: Path) -> None:
    reader = Reader(Training(tmp_path), times=2)
    assert reader.use(tmp_path) == "epoch-0003.pt"
    assert reader.calls == 3


def test_one_that_is_removed_only_when_it_is_used_is_chosen_again_too(tmp_path: Path) -> None:
    training = Training(tmp_path)
    reader = Reader(training, times=0)
    used = []

    def use(path: Path) -> str:
        used.append(path.name)
        if len(used) == 1:
            training.go_on()
        return training.read(path)

    assert use_checkpoint(cast(Supervisor, reader), tmp_path, use) == "epoch-0002.pt"
    assert used == ["epoch-0001.pt", "epoch-0002.pt"]


def test_a_training_that_is_always_faster_is_named_after_some_tries(tmp_path: Path) -> None:
    reader = Reader(Training(tmp_path), times=1000)
    with pytest.raises(RequestRefused, match="removes its checkpoints before they can be read"):
        reader.use(tmp_path)
    assert reader.calls == MAX_TRIES


def test_another_refusal_is_not_tried_again(tmp_path: Path) -> None:
    reader = Reader(Training(tmp_path), times=0)

    def use(path: Path) -> None:
        raise RequestRefused(f"{path} is damaged")

    with pytest.raises(RequestRefused, match="is damaged"):
        use_checkpoint(cast(Supervisor, reader), tmp_path, use)
    assert reader.calls == 1


def test_a_file_that_is_named_is_used_as_it_is(tmp_path: Path) -> None:
    training = Training(tmp_path)
    reader = Reader(training, times=0)
    with pytest.raises(RequestRefused, match=r"gone\.pt does not exist"):
        reader.use(tmp_path / "gone.pt")
    assert reader.use(training.folder / file_name(1)) == file_name(1)
    assert reader.calls == 0
