"""What training, evaluation and prediction refuse before anything starts."""

from __future__ import annotations

import pickle
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from mgpubench.results.session_folder import reopen_session
from mgpubench.session.document import load_session
from tests.conftest import Here
from tests.faults.test_surroundings import NOTHING, Report, mgpubench, unshared

pytestmark = pytest.mark.faults

SINGLE = (
    *("--device", "cpu", "--model", "mlp", "--image-size", 32, "--global-batch", 6),
    *("--no-augment", "--data", "photos"),
)
TRAIN = ("train", *SINGLE, "--mode", "single", "--epochs", 1)
RESUME = ("train", "--resume", "results/{folder}", "--epochs", 2)
EVALUATE = ("evaluate", "results/{folder}", "--data", "photos", "--device", "cpu")
PREDICT = ("predict", "results/{folder}", "photos/cat/1.jpg")
UNCHANGED = "all; nothing was started"

Train = Callable[..., Here]


@pytest.fixture
def train(run_here: Train, photos: Callable[..., Path], tmp_path: Path) -> Train:
    """Runs a command on a folder of images, `photos`, in the test's folder."""
    photos(cat=9, dog=11)
    return lambda *arguments: run_here(*arguments, cwd=tmp_path)


@dataclass(frozen=True)
class Folder:
    """A finished training, in the folder of a test."""

    test: Path
    name: str

    @property
    def checkpoint(self) -> Path:
        return self.test / "results" / self.name / "checkpoints" / "epoch-0001.pt"

    def files(self) -> dict[str, bytes]:
        """All files of the training."""
        root = self.test / "results" / self.name
        return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def trained(train: Train, tmp_path: Path) -> Folder:
    result = train(*TRAIN)
    assert result.exit_code == 0, result.err
    (folder,) = (tmp_path / "results").iterdir()
    return Folder(tmp_path, folder.name)


def halve(folder: Folder) -> None:
    content = folder.checkpoint.read_bytes()
    folder.checkpoint.write_bytes(content[: len(content) // 2])


def flip_a_byte(folder: Folder) -> None:
    content = bytearray(folder.checkpoint.read_bytes())
    content[len(content) // 2] ^= 0x10
    folder.checkpoint.write_bytes(content)


class Code:
    """Pickled, it is a call."""

    def __reduce__(self) -> Any:
        return (subprocess.call, (["touch", "harm"],))


def hide_code(folder: Folder) -> None:
    torch.save({"format": Code()}, folder.checkpoint)


def pickle_only(folder: Folder) -> None:
    folder.checkpoint.write_bytes(pickle.dumps({"model": {}}))


def make_newer(folder: Folder) -> None:
    content = torch.load(folder.checkpoint, weights_only=True)
    torch.save({**content, "version": 99}, folder.checkpoint)


def rename_a_class(folder: Folder) -> None:
    (folder.test / "photos" / "dog").rename(folder.test / "photos" / "wolf")


def copy_with_a_wolf(folder: Folder) -> None:
    shutil.copytree(folder.test / "photos", folder.test / "other")
    (folder.test / "other" / "dog").rename(folder.test / "other" / "wolf")


def remove_an_image(folder: Folder) -> None:
    (folder.test / "photos" / "cat" / "1.jpg").unlink()


def nothing(folder: Folder) -> None:
    """For options that are wrong by themselves."""


@dataclass(frozen=True)
class Refusal:
    """What is wrong with a command about a finished training, and what the user sees."""

    fault: str
    says: str
    hurt: Callable[[Folder], None] = nothing
    command: tuple[object, ...] = field(default=EVALUATE)
    mode: str = "single"


OTHER_MODEL = ("train", *SINGLE, "--model", "tiny-cnn", "--mode", "single", "--epochs", 2)
OF_FILE = ("--resume", "results/{folder}/checkpoints/epoch-0001.pt")
REFUSALS = [
    Refusal("a checkpoint that is cut in half", "error: .*epoch-0001.pt", halve),
    Refusal("a checkpoint with one wrong byte", "error: .*epoch-0001.pt", flip_a_byte),
    Refusal("a checkpoint with code in it", "error: .*epoch-0001.pt", hide_code),
    Refusal("a pickle that is no checkpoint", "error: .*epoch-0001.pt", pickle_only),
    Refusal("a checkpoint of a newer version", "error: .*epoch-0001.pt", make_newer),
    Refusal("a checkpoint cut in half, at predict", "error: .*is damaged", halve, PREDICT),
    Refusal(
        "a checkpoint with one wrong byte, at --resume",
        "error: .*is damaged",
        flip_a_byte,
        RESUME,
    ),
    Refusal(
        "a checkpoint of another model",
        "error: --model is tiny-cnn, and .* has mlp",
        command=(*OTHER_MODEL, *OF_FILE),
    ),
    Refusal(
        "a checkpoint of other classes",
        "error: the classes are cat, wolf, and .* has cat, dog",
        rename_a_class,
        ("train", *SINGLE, "--mode", "single", "--epochs", 2, *OF_FILE),
    ),
    Refusal(
        "a class that the training does not know is evaluated",
        "error: .* has classes that the training does not have: wolf",
        rename_a_class,
    ),
    Refusal(
        "--eval-data has a class that the training does not know",
        "error: other has classes that the training does not have: wolf",
        copy_with_a_wolf,
        (*TRAIN, "--eval-data", "other"),
    ),
    Refusal(
        "the classes have changed before --resume",
        "error: the classes are cat, wolf, and .* has cat, dog",
        rename_a_class,
        RESUME,
    ),
    Refusal(
        "the images have changed before --resume",
        "error: .*the names or sizes of the images have changed",
        remove_an_image,
        RESUME,
    ),
    Refusal(
        "another option at --resume",
        "error: .*--lr was 0.01, and cannot be 1.0 now",
        command=(*RESUME, "--lr", 1),
    ),
    Refusal(
        "a global batch that the devices of --resume cannot share",
        "error: .*cannot be shared equally by 4 devices",
        command=(*RESUME, "--mode", "ddp", "--gpus", 4),
        mode="ddp",
    ),
    Refusal(
        "predict without an image: a folder",
        "error: cannot read image photos: it is a folder",
        command=("predict", "results/{folder}", "photos"),
    ),
    Refusal(
        "predict without an image: a wrong name",
        "error: cannot read image gone.jpg: it does not exist",
        command=("predict", "results/{folder}", "photos/cat/1.jpg", "gone.jpg"),
    ),
    Refusal(
        "--resume last without a training",
        "error: --resume last: elsewhere has no training",
        command=("train", "--resume", "last", "--out", "elsewhere"),
    ),
    Refusal(
        "fewer images than one global batch",
        "error: .*20 images",
        command=(*TRAIN, "--global-batch", 64),
    ),
    Refusal(
        "a split that leaves a class without images",
        "error: --split",
        command=(*TRAIN, "--split", 0.01),
    ),
    Refusal(
        "two ways to evaluate",
        "error: --eval-data and --split exclude each other",
        command=(*TRAIN, "--split", 0.5, "--eval-data", "photos"),
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.fault)
def test_what_cannot_be_used_is_refused_and_left_as_it_was(
    train: Train, trained: Folder, report: Report, case: Refusal
) -> None:
    case.hurt(trained)
    before = trained.files()
    result = train(*(str(word).format(folder=trained.name) for word in case.command))
    report(case.fault, result, case.says, code=2, mode=case.mode, kept=UNCHANGED)
    assert trained.files() == before
    assert not (trained.test / "harm").exists()
    assert [path.name for path in (trained.test / "results").iterdir()] == [trained.name]


def test_a_training_that_runs_is_not_resumed(train: Train, trained: Folder, report: Report) -> None:
    folder = trained.test / "results" / trained.name
    with reopen_session(folder, load_session(folder).id):
        result = train(*(str(word).format(folder=trained.name) for word in RESUME))
    name, says = "--resume of a training that still runs", "error: another mgpubench is writing to"
    report(name, result, says, code=2, mode="single", kept=UNCHANGED)


def test_a_disk_without_room_for_checkpoints_is_refused(
    photos: Callable[..., Path], tmp_path: Path, report: Report
) -> None:
    photos(cat=9, dog=11)
    (tmp_path / "out").mkdir()
    prefix = unshared("-m", "mount -t tmpfs -o size=1m tmpfs out")
    command = mgpubench(*TRAIN, "--out", "out", cwd=tmp_path, prefix=prefix)
    says = "error: .* has no room for checkpoints"
    report("no room for checkpoints", command, says, code=2, mode="single", kept=NOTHING)
