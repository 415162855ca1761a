"""`mgpubench train`, `evaluate` and `predict` on the CPU, with a tiny model."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mgpubench.training.checkpoint import load
from tests.conftest import Here
from tests.processes import Command, wait_until

TINY = ("--device", "cpu", "--image-size", 32, "--global-batch", 6, "--lr", 0.05)

Train = Callable[..., Here]
Start = Callable[..., Command]


@pytest.fixture
def train(run_here: Train, photos: Callable[..., Path], tmp_path: Path) -> Train:
    """Runs a command on a folder of images, `photos`, in the test's folder."""
    photos(cat=9, dog=11)
    return lambda *arguments: run_here(*arguments, cwd=tmp_path)


def done(result: Here) -> Path:
    """The folder of a training that has ended well."""
    assert result.exit_code == 0, result.err
    results, compare = result.err.splitlines()[-2:]
    assert compare == results.replace("results:", "compare: mgpubench compare")
    return Path(results.removeprefix("results: "))


def refusal(result: Here) -> str:
    """The error of a command that was refused."""
    assert (result.exit_code, result.out) == (2, ""), result.err
    (line,) = (line for line in result.err.splitlines() if line.startswith("error: "))
    return line.removeprefix("error: ")


def rows(folder: Path, name: str = "epochs.csv") -> list[dict[str, str]]:
    if not (folder / name).exists():
        return []
    with open(folder / name, newline="") as file:
        return list(csv.DictReader(file))


def weights(folder: Path, epoch: int) -> dict[str, Tensor]:
    return dict(load(folder / "checkpoints" / f"epoch-{epoch:04}.pt").model)


def assert_close(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], rtol=1e-5, atol=1e-5)


def new(*options: object) -> tuple[object, ...]:
    return ("train", "--data", "photos", "--no-augment", *TINY, *options)


def test_a_training_that_changes_its_mode_equals_one_that_goes_through(
    train: Train, tmp_path: Path
) -> None:
    """dp for 3 epochs, ddp, fsdp, then single: an mlp has no BatchNorm."""
    mlp = ("--model", "mlp", "--keep", 9)
    whole = tmp_path / done(train(*new(*mlp, "--mode", "single", "--epochs", 6)))
    first = tmp_path / done(train(*new(*mlp, "--mode", "dp", "--gpus", 2, "--epochs", 3)))
    again = ("train", "--resume", first.relative_to(tmp_path))
    done(train(*again, "--mode", "ddp", "--gpus", 3, "--epochs", 4))
    done(train(*again, "--mode", "fsdp", "--gpus", 2, "--epochs", 5))
    done(train(*again, "--mode", "single", "--gpus", 1, "--epochs", 6))
    epochs = rows(first)
    assert [(row["epoch"], row["mode"], row["sitting"]) for row in epochs] == [
        *((str(epoch), "dp", "1") for epoch in (1, 2, 3)),
        ("4", "ddp", "2"),
        ("5", "fsdp", "3"),
        ("6", "single", "4"),
    ]
    for row, other in zip(epochs, rows(whole), strict=True):
        assert float(row["train_loss"]) == pytest.approx(float(other["train_loss"]), rel=1e-5)
        assert (row["samples"], row["dropped_images"], row["global_batch"]) == ("18", "2", "6")
    for epoch in (3, 4, 5, 6):
        assert_close(weights(first, epoch), weights(whole, epoch))


@pytest.mark.parametrize("model", ["mlp", "tiny-cnn"])
def test_dp_ddp_and_fsdp_train_the_same_weights(train: Train, tmp_path: Path, model: str) -> None:
    """Also with BatchNorm, since device d takes the same part of each batch."""
    options = ("--model", model, "--gpus", 2, "--epochs", 3)
    dp, ddp, fsdp = (
        tmp_path / done(train(*new(*options, "--mode", mode))) for mode in ("dp", "ddp", "fsdp")
    )
    assert_close(weights(dp, 3), weights(ddp, 3))
    assert_close(weights(ddp, 3), weights(fsdp, 3))


def test_fsdp_clips_the_norm_of_all_gradients_together(train: Train, tmp_path: Path) -> None:
    """Each rank has only a part of them."""
    options = ("--model", "tiny-cnn", "--gpus", 2, "--epochs", 1)
    clip = ("--clip-grad-norm", 0.1)
    plain, clipped, sharded = (
        tmp_path / done(train(*new(*options, "--mode", mode, *extra)))
        for mode, extra in (("ddp", ()), ("ddp", clip), ("fsdp", clip))
    )
    assert_close(weights(clipped, 1), weights(sharded, 1))
    one, other = (weights(folder, 1)["11.bias"] for folder in (plain, clipped))
    assert not torch.allclose(one, other, atol=1e-4)


def test_ctrl_c_in_the_second_epoch_and_resume_end_bit_equal(
    start: Start, train: Train, tmp_path: Path
) -> None:
    """With augmentation, whose draws must not depend on the interruption."""
    options = ("train", "--data", "photos", *TINY, "--model", "tiny-cnn", "--log-every", 1)
    options = (*options, "--mode", "ddp", "--gpus", 2, "--epochs", 30)
    whole = tmp_path / done(train(*options))
    command = start(*options, "--out", "cut")
    wait_until(lambda: any(map(rows, tmp_path.glob("cut/*"))), 120, "a row of epochs.csv")
    os.killpg(command.popen.pid, signal.SIGINT)
    assert command.wait(60) == 130
    (cut,) = (tmp_path / "cut").iterdir()
    before = len(rows(cut))
    assert before < 30
    done(train("train", "--resume", "last", "--out", "cut"))
    after = rows(cut)
    assert after[-1]["epoch"] == "30"
    assert {row["sitting"] for row in after[before:]} == {"2"}
    for name, tensor in weights(cut, 30).items():
        assert torch.equal(tensor, weights(whole, 30)[name])


def test_evaluation_counts_each_image_once_on_any_number_of_ranks(
    train: Train, tmp_path: Path
) -> None:
    folder = done(train(*new("--model", "tiny-cnn", "--mode", "single", "--epochs", 1)))
    figures = [
        json.loads(result.out)
        for mode, count in (("single", 1), ("dp", 2), ("ddp", 3), ("fsdp", 2), ("fsdp", 3))
        for result in [
            train(
                *("evaluate", folder, "--data", "photos", "--device", "cpu", "--format", "json"),
                *("--mode", mode, "--gpus", count),
            )
        ]
    ]
    assert all(figure == figures[0] for figure in figures)
    assert figures[0]["eval_samples"] == 20
    assert figures[0]["top5"] is None


def test_the_held_out_images_of_each_class_are_evaluated_after_each_epoch(
    train: Train, tmp_path: Path
) -> None:
    result = train(*new("--model", "tiny-cnn", "--mode", "single", "--epochs", 2, "--split", 0.7))
    first, second = rows(tmp_path / done(result))
    assert (first["samples"], first["dropped_images"], first["eval_samples"]) == ("12", "2", "6")
    assert 0 <= float(second["top1"]) <= 1
    assert second["top5"] == ""
    assert "epoch 2: loss " in result.err
    assert result.out.count("\n") == 4


def test_lines_of_loss_are_means_since_the_line_before(train: Train, tmp_path: Path) -> None:
    """Three steps an epoch: a line after step 2, and one at the end of the epoch."""
    options = ("--model", "mlp", "--mode", "ddp", "--gpus", 2, "--epochs", 1)
    two = rows(tmp_path / done(train(*new(*options, "--log-every", 2))), "losses.csv")
    one = rows(tmp_path / done(train(*new(*options, "--log-every", 1))), "losses.csv")
    assert [(row["step"], row["samples"]) for row in two] == [("2", "12"), ("3", "6")]
    losses = [float(row["loss"]) for row in one]
    assert float(two[0]["loss"]) == pytest.approx((losses[0] + losses[1]) / 2)
    assert float(two[1]["loss"]) == pytest.approx(losses[2])


def test_a_checkpoint_begins_a_new_training(train: Train, tmp_path: Path) -> None:
    mlp = ("--model", "mlp", "--mode", "single")
    first = tmp_path / done(train(*new(*mlp, "--epochs", 1)))
    file = first / "checkpoints" / "epoch-0001.pt"
    second = tmp_path / done(train(*new("--mode", "single", "--epochs", 2, "--resume", file)))
    assert second != first
    assert [row["epoch"] for row in rows(second)] == ["2"]
    whole = tmp_path / done(train(*new(*mlp, "--epochs", 2)))
    assert_close(weights(second, 2), weights(whole, 2))
    assert json.loads((second / "session.json").read_text())["resumed_from"] == str(file)
    assert refusal(train(*new("--resume", file, "--model", "tiny-cnn"))) == (
        f"--model is tiny-cnn, and {file} has mlp"
    )


def test_prediction_names_the_classes(train: Train, tmp_path: Path) -> None:
    folder = done(train(*new("--model", "tiny-cnn", "--mode", "single", "--epochs", 1)))
    result = train("predict", folder, "photos/cat/1.jpg", "--format", "json")
    ((prediction),) = json.loads(result.out)
    assert prediction["image"] == "photos/cat/1.jpg"
    assert {guess["name"] for guess in prediction["guesses"]} == {"cat", "dog"}
    assert sum(guess["probability"] for guess in prediction["guesses"]) == pytest.approx(1)
    assert refusal(train("predict", folder, "photos")).startswith("cannot read image photos: ")


REFUSED: list[tuple[tuple[object, ...], str]] = [
    (("train", "--smoke"), "--data is synthetic, and training needs a folder of images"),
    (("train", "--resume", "last"), "--resume last: results has no training"),
    (new("--mode", "dp,ddp"), "--mode is dp,ddp, and a training has one mode"),
    (new("--split", 1.5), "--split is 1.5, and must be above 0 and below 1"),
    (new("--split", 0.5, "--eval-data", "photos"), "--eval-data and --split exclude each other"),
    (new("--epochs", 0), "--epochs is 0, and must be at least 1"),
    (new("--lr", -1), "--lr is -1, and must be at least 0 and below 100000"),
    (("evaluate", "results", "--data", "photos"), "results has no checkpoint"),
]


@pytest.mark.parametrize(("arguments", "error"), REFUSED, ids=[error for _, error in REFUSED])
def test_what_cannot_be_done_is_refused(
    train: Train, tmp_path: Path, arguments: tuple[object, ...], error: str
) -> None:
    (tmp_path / "results").mkdir()
    assert refusal(train(*arguments)) == error
    assert not list((tmp_path / "results").iterdir())


def test_a_resumed_training_keeps_its_options_and_its_images(train: Train, tmp_path: Path) -> None:
    mlp = ("--model", "mlp", "--mode", "single", "--epochs", 1)
    folder = done(train(*new(*mlp)))
    again = ("train", "--resume", folder)
    assert "is a training, and not a session" in refusal(train("run", *again[1:]))
    assert refusal(train(*again, "--lr", 1)).endswith("--lr was 0.05, and cannot be 1.0 now")
    assert refusal(train(*again, "--compile")).endswith("--compile was off, and cannot be on now")
    assert refusal(train(*again, "--zero")).endswith("--zero was off, and cannot be on now")
    assert refusal(train(*again, "--augment")).endswith("--augment was off, and cannot be on now")
    assert refusal(train(*again, "--eval-data", "photos")).endswith(
        "--eval-data was not given, and cannot be photos now"
    )
    assert "cannot be shared equally by 4 devices" in refusal(
        train(*again, "--mode", "ddp", "--gpus", 4, "--epochs", 2)
    )
    nothing = train(*again, "--lr", 0.05)
    assert nothing.exit_code == 0
    assert "nothing is missing in " in nothing.err
    (tmp_path / "photos" / "cat" / "1.jpg").unlink()
    assert "the names or sizes of the images have changed" in refusal(train(*again, "--epochs", 2))


def test_evaluating_on_unknown_classes_is_refused(train: Train, tmp_path: Path) -> None:
    folder = done(train(*new("--model", "mlp", "--mode", "single", "--epochs", 1)))
    (tmp_path / "photos" / "dog").rename(tmp_path / "photos" / "wolf")
    result = train("evaluate", folder, "--data", "photos", "--device", "cpu")
    assert "has classes that the training does not have: wolf" in refusal(result)


def test_images_seen_in_training_are_named_where_they_are_evaluated(
    train: Train, tmp_path: Path
) -> None:
    shutil.copytree(tmp_path / "photos", tmp_path / "copy")
    (tmp_path / "same").symlink_to("photos")
    options = ("--model", "mlp", "--mode", "single", "--epochs", 1)
    trained = train(*new(*options, "--eval-data", "same"))
    folder = done(trained)
    seen = "the accuracy is that on images seen in training, and not on new ones"
    assert f"--eval-data has the images of --data: {seen}" in trained.err
    evaluate = ("evaluate", folder, "--device", "cpu", "--data")
    assert f"that {folder}/checkpoints/epoch-0001.pt was trained on: {seen}" in (
        train(*evaluate, "copy").err
    )
    (tmp_path / "copy" / "cat" / "1.jpg").unlink()
    assert seen not in train(*evaluate, "copy").err


def test_the_best_epoch_has_a_checkpoint(train: Train, tmp_path: Path) -> None:
    """Without a learning rate all epochs are equally good: the first one that is kept counts."""
    options = ("--model", "mlp", "--mode", "single", "--lr", 0, "--eval-data", "photos")
    folder = tmp_path / done(train(*new(*options, "--epochs", 3, "--checkpoint-every", 2)))
    best = load(folder / "checkpoints" / "epoch-0003.pt").about.best
    assert best is not None
    assert best.epoch == 2
