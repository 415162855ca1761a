"""`run` and `train` with the modes that run only if they are named."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mgpubench.training.checkpoint import load
from mgpubench.training.models.builtin import mlp
from tests.conftest import Here
from tests.installed import needs_deepspeed, slow

RunHere = Callable[..., Here]


def rows(folder: Path, name: str = "runs.csv") -> list[dict[str, str]]:
    (path,) = folder.glob(f"results/*/{name}")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_fsdp_runs_and_is_compared_with_ddp(run_here: RunHere, tmp_path: Path) -> None:
    done = run_here(
        *("run", "--smoke", "--mode", "fsdp,ddp", "--precision", "amp-fp16", "--accumulate", 2),
        *("--rounds", 5, "--model", "tiny-cnn", "--zero"),
        cwd=tmp_path,
    )
    assert done.exit_code == 0, done.err
    found = {row["mode"]: row for row in rows(tmp_path)}
    assert sorted(found) == ["ddp", "fsdp"]
    fsdp = found["fsdp"]
    assert fsdp["effective_mode"] == "fsdp"
    assert (fsdp["world_size"], fsdp["num_devices"], fsdp["backend"]) == ("2", "2", "gloo")
    assert (fsdp["options"], found["ddp"]["options"]) == ("", "zero=true")
    assert fsdp["skipped_steps"] == "0"
    assert fsdp["num_parameters"] == found["ddp"]["num_parameters"]
    assert "fsdp against ddp on 2 devices: " in done.out


@slow
@needs_deepspeed
def test_deepspeed_runs_and_is_compared_with_ddp(run_here: RunHere, tmp_path: Path) -> None:
    done = run_here(
        *("run", "--smoke", "--mode", "deepspeed,ddp", "--rounds", 5, "--accumulate", 2),
        *("--optimizer", "adamw", "--precision", "amp-bf16"),
        cwd=tmp_path,
    )
    assert done.exit_code == 0, done.err
    row = next(row for row in rows(tmp_path) if row["mode"] == "deepspeed")
    assert (row["effective_mode"], row["world_size"], row["backend"]) == ("deepspeed", "2", "gloo")
    assert (row["samples"], row["options"], row["skipped_steps"]) == (str(5 * 2 * 16), "", "")
    assert "deepspeed against ddp on 2 devices: " in done.out


@pytest.mark.skipif(bool(importlib.util.find_spec("deepspeed")), reason="deepspeed is installed")
def test_deepspeed_that_is_not_installed_is_refused(run_here: RunHere, tmp_path: Path) -> None:
    done = run_here("run", "--smoke", "--mode", "deepspeed", cwd=tmp_path)
    assert (done.exit_code, done.out) == (2, "")
    assert "error: --mode deepspeed needs the package deepspeed: No module named" in done.err
    assert "pip install deepspeed" in done.err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "command",
    [("train", "--data", "photos"), ("evaluate", "epoch-0001.pt", "--data", "photos")],
    ids=["train", "evaluate"],
)
def test_deepspeed_has_no_checkpoints(
    run_here: RunHere, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = run_here(*command, "--mode", "deepspeed", cwd=tmp_path)
    assert (done.exit_code, done.out) == (2, "")
    assert "error: --mode deepspeed has no checkpoints: it is for mgpubench run alone" in done.err


def test_all_does_not_name_them(run_here: RunHere, tmp_path: Path) -> None:
    done = run_here("run", "--smoke", "--mode", "all", "--dry-run", cwd=tmp_path)
    assert done.exit_code == 0, done.err
    assert "ddp" in done.out
    assert "fsdp" not in done.out
    assert "deepspeed" not in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--channels-last",), "--channels-last and --mode fsdp exclude each other"),
        (("--compile",), "--compile and --mode fsdp exclude each other"),
        (("--static-graph",), "--static-graph: only for ddp, which --mode fsdp does not run"),
        (("--model", "tests.trained:dropping"), "--mode fsdp cannot share out weight of --model"),
    ],
)
def test_what_fsdp_cannot_do_is_refused_before_anything_is_written(
    run_here: RunHere, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = run_here("run", "--smoke", "--mode", "fsdp", *arguments, cwd=tmp_path)
    assert (done.exit_code, done.out) == (2, "")
    assert f"error: {words}" in done.err
    assert not (tmp_path / "results").exists()


def test_fsdp_trains_from_the_weights_of_a_file(
    run_here: RunHere, photos: Callable[..., Path], tmp_path: Path
) -> None:
    """With a learning rate of 0 they are the same bits in the checkpoint."""
    photos(cat=4, dog=4)
    weights = mlp(2).state_dict()
    torch.save(weights, tmp_path / "weights.pt")
    done = run_here(
        *("train", "--data", "photos", "--device", "cpu", "--mode", "fsdp", "--model", "mlp"),
        *("--image-size", 32, "--global-batch", 4, "--epochs", 1, "--lr", 0),
        *("--pretrained", "weights.pt", "--split", 0.75),
        cwd=tmp_path,
    )
    assert done.exit_code == 0, done.err
    (row,) = rows(tmp_path, "epochs.csv")
    assert (row["mode"], row["num_devices"], row["eval_samples"]) == ("fsdp", "2", "2")
    (checkpoint,) = tmp_path.glob("results/*/checkpoints/*.pt")
    saved = load(checkpoint).model
    assert saved.keys() == weights.keys()
    assert all(torch.equal(saved[name], weights[name]) for name in weights)
