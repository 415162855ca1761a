"""The scripts in examples/ run on a CPU, and go on from each other's checkpoints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))

IMAGES = ("--model", "resnet18", "--image-size", "32", "--workers-per-gpu", "1")
ON_TWO_PROCESSES = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def python(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, as on a machine without GPUs."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What a script that succeeded has printed, with n for every figure."""
    assert done.returncode == 0, done.stderr
    assert not re.search("(User|Future)Warning", done.stderr)
    return [
        re.sub(r"(?<=loss )\d+\.\d{4}|\b\d+(\.\d)?(?= \w+/s)", "n", line)
        for line in done.stdout.splitlines()
        if not line.startswith("[Gloo]")
    ]


def epochs_behind(checkpoint: Path) -> int:
    """The epoch of a checkpoint, whose weights have the names that the plain model gives them."""
    import torch

    epoch, weights, optimizer = torch.load(checkpoint, map_location="cpu", weights_only=True)
    assert "conv1.weight" in weights
    assert set(optimizer) == {"state", "param_groups"}
    assert isinstance(epoch, int)
    return epoch


@pytest.mark.timeout(300)  # three starts of torch, one after the other
def test_training_goes_on_from_dp_to_ddp_and_back(
    photos: Callable[..., Path], tmp_path: Path
) -> None:
    photos(cat=21, dog=21)
    dp = (EXAMPLES / "dp_imagefolder.py", "photos", *IMAGES, "--batch-per-gpu", 4)
    ddp = (EXAMPLES / "ddp_imagefolder.py", "photos", *IMAGES, "--batch-per-gpu", 2)

    # 42 images are 10 batches of 4, in one process or in two with a half each.
    done = python(*dp, "--epochs", 1, cwd=tmp_path)
    assert lines(done) == ["epoch 1 step 10: loss n", "epoch 1: loss n, n images/s"]
    assert epochs_behind(tmp_path / "epoch-1.pt") == 1

    done = python(*(*ON_TWO_PROCESSES, *ddp, "--epochs", 2, "--resume", "epoch-1.pt"), cwd=tmp_path)
    assert lines(done) == ["rank 0 epoch 2 step 10: loss n", "rank 0 epoch 2: loss n, n images/s"]
    assert epochs_behind(tmp_path / "epoch-2.pt") == 2

    done = python(*dp, "--epochs", 3, "--resume", "epoch-2.pt", cwd=tmp_path)
    assert lines(done) == ["epoch 3 step 10: loss n", "epoch 3: loss n, n images/s"]
    assert epochs_behind(tmp_path / "epoch-3.pt") == 3


def test_the_toy_trains_and_every_rank_reads_its_weights(tmp_path: Path) -> None:
    toy = (EXAMPLES / "ddp_toy.py", "--epochs", 2, "--samples", 256)
    assert lines(python(*ON_TWO_PROCESSES, *toy, cwd=tmp_path)) == [
        "rank 0 epoch 1: loss n, n samples/s",
        "rank 0 epoch 2: loss n, n samples/s",
        "every rank has read toy.pt, and has these weights",
    ]
    assert (tmp_path / "toy.pt").is_file()


def test_fewer_images_than_one_batch_are_no_success(
    photos: Callable[..., Path], tmp_path: Path
) -> None:
    photos()
    done = python(EXAMPLES / "dp_imagefolder.py", "photos", *IMAGES, cwd=tmp_path)
    assert done.returncode == 1
    assert "8 images are fewer than one batch of 64" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_is_short_and_needs_only_torch(script: Path) -> None:
    text = script.read_text()
    assert len(text.splitlines()) < 60
    imported = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
    assert set(imported) <= {"argparse", "time", "torch", "torchvision"}


def test_there_are_three_scripts_and_the_page_names_each() -> None:
    page = (EXAMPLES / "README.md").read_text()
    assert len(SCRIPTS) == 3
    assert all(f"[{script.name}]({script.name})" in page for script in SCRIPTS)
