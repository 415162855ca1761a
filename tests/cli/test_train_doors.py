"""What `train`, `evaluate` and `export` refuse before torch is loaded, and before they write."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from mgpubench.cli import cli

NEW = ("train", "--data", "photos", "--device", "cpu")
SGD_HINT = "Leave out what only sgd has, or use --optimizer sgd."
PRETRAINED = (
    "--pretrained and --resume exclude each other: the checkpoint has the weights",
    "Leave --pretrained out, or begin a new training with --pretrained FILE alone.",
)
CHECKPOINT_HINT = "mgpubench train writes checkpoints to the folder checkpoints of its session."
EVALUATE = ("evaluate", "file.pt", "--data", "photos")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: images of two classes, and a file."""
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "1.jpg").touch()
    (tmp_path / "file.pt").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(arguments: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The error and the hint of a command that starts no process."""

    def fail(*values: object, **options: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("multiprocessing.process.BaseProcess.start", fail)
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    error, hint = result.stderr.splitlines()[-2:]
    return error.removeprefix("error: "), hint.removeprefix("hint: ")


REFUSED: list[tuple[tuple[object, ...], str, str]] = [
    ((*NEW, "--resume", "file.pt", "--pretrained"), *PRETRAINED),
    ((*NEW, "--resume", "file.pt", "--pretrained", "file.pt"), *PRETRAINED),
    (
        (*NEW, "--epochs", 2, "--warmup-epochs", 2.5),
        "--warmup-epochs 2.5 is more than --epochs 2: the learning rate would never reach --lr",
        "Train more epochs, or let the rate rise in fewer.",
    ),
    (
        (*NEW, "--optimizer", "adam", "--momentum", 0.9),
        "--momentum: only for sgd, and --optimizer is adam",
        SGD_HINT,
    ),
    (
        (*NEW, "--optimizer", "adamw", "--nesterov", "--momentum", 0),
        "--momentum, --nesterov: only for sgd, and --optimizer is adamw",
        SGD_HINT,
    ),
    (
        (*NEW, "--nesterov", "--momentum", 0),
        "--nesterov needs a --momentum above 0",
        "Leave --nesterov out, or use a momentum such as the default, 0.9.",
    ),
    (
        (*NEW, "--deterministic", "--cudnn-benchmark"),
        "--deterministic and --cudnn-benchmark exclude each other: cuDNN's trials may choose "
        "other algorithms in the next training",
        "Leave --cudnn-benchmark out for equal weights, or --deterministic for speed.",
    ),
    (
        (*NEW, "--gpus", "1,2"),
        "--gpus is 1,2, and a training has one number of GPUs",
        "Choose one. To compare the speed on several: mgpubench run.",
    ),
    (
        (*NEW, "--mode", "all"),
        "--mode is all, and a training has one mode",
        "Choose one. To compare the speed of modes: mgpubench run.",
    ),
    ((*NEW, "--steps", 5), "--steps is for mgpubench run", "A training counts epochs: --epochs."),
    (
        (*NEW, "--warmup-steps", 5),
        "--warmup-steps is for mgpubench run",
        "In a training only the learning rate warms up: --warmup-epochs.",
    ),
    (
        (*NEW, "--oversubscribe"),
        "--oversubscribe is for mgpubench run",
        "A training has one replica on each GPU: use fewer --gpus.",
    ),
    (
        (*NEW, "--eval-every", 2),
        "--eval-every has no meaning without images to evaluate on",
        "Give them with --eval-data FOLDER, or a share of --data with --split 0.9.",
    ),
    (
        (*NEW, "--clip-grad-norm", "inf"),
        "--clip-grad-norm is inf, and must be a number above 0",
        "Leave it out if the norm should have no limit.",
    ),
    (
        ("train",),
        "--data is synthetic, and training needs a folder of images",
        "Name one with --data FOLDER. To measure the speed on synthetic data: mgpubench run.",
    ),
    (
        (*NEW, "--mode", "single", "--zero", "--comm-hook", "fp16"),
        "--comm-hook, --zero: only for ddp, which --mode single does not run",
        "Leave them out, or use --mode ddp.",
    ),
    (
        (*NEW, "--out", "photos/results"),
        "--out photos/results is in --data photos: the results would be listed as a class of "
        "images",
        "Give a folder elsewhere with --out.",
    ),
    (
        ("train", "--data", ".", "--eval-data", "photos"),
        "--out results is in --data .: the results would be listed as a class of images",
        "Give a folder elsewhere with --out.",
    ),
    (
        (*NEW, "--eval-data", "other", "--out", "other"),
        "--out other is in --eval-data other: the results would be listed as a class of images",
        "Give a folder elsewhere with --out.",
    ),
    (
        ("run", "--smoke", "--data", ".", "--rounds", 1),
        "--out results is in --data .: the results would be listed as a class of images",
        "Give a folder elsewhere with --out.",
    ),
    ((*NEW, "--pretrained", "gone.pt"), "gone.pt does not exist", CHECKPOINT_HINT),
    (
        ("train", "--resume", "gone"),
        "--resume gone does not exist",
        "Give the folder of a training, a checkpoint, or last for the newest training.",
    ),
    (("evaluate", "gone", "--data", "photos"), "gone does not exist", CHECKPOINT_HINT),
    (("predict", "gone", "photos/cat/1.jpg"), "gone does not exist", CHECKPOINT_HINT),
    (("export", "gone", "new.safetensors"), "gone does not exist", CHECKPOINT_HINT),
    (("export", "file.pt", "photos"), "photos exists already", "Name another file."),
    (
        ("export", "file.pt", "gone/new"),
        "gone/new cannot be written: gone is not a folder",
        "Make the folder, or name a file in another one.",
    ),
    (
        (*EVALUATE, "--mode", "all"),
        "--mode is all, and an evaluation has one mode",
        "Choose one. To compare the speed of modes: mgpubench run.",
    ),
    (
        (*EVALUATE, "--mode", "single,ddp"),
        "--mode is single,ddp, and an evaluation has one mode",
        "Choose one. To compare the speed of modes: mgpubench run.",
    ),
    (
        (*EVALUATE, "--gpus", "1,2"),
        "--gpus is 1,2, and an evaluation has one number of GPUs",
        "Choose one. To compare the speed on several: mgpubench run.",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "error", "hint"), REFUSED, ids=[" ".join(map(str, case[0])) for case in REFUSED]
)
def test_a_contradiction_is_refused_in_one_line_with_a_hint_that_fits(
    arguments: tuple[object, ...],
    error: str,
    hint: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = sorted(here.rglob("*"))
    assert refusal(arguments, monkeypatch) == (error, hint)
    assert sorted(here.rglob("*")) == before


def test_the_options_of_a_measurement_are_not_in_the_help_of_train() -> None:
    text = CliRunner().invoke(cli, ["train", "--help"]).stdout
    assert "--warmup-epochs" in text
    assert not [name for name in ("--steps", "--warmup-steps", "--oversubscribe") if name in text]
    assert "--oversubscribe" in CliRunner().invoke(cli, ["run", "--help"]).stdout
