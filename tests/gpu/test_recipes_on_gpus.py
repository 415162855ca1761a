"""Precisions, options of DDP and the loss log on GPUs."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import Command

pytestmark = pytest.mark.gpu

Start = Callable[..., Command]
SMALL = (
    *("run", "--device", "cuda", "--model", "resnet18", "--image-size", 64, "-b", 8),
    *("--warmup-steps", 12, "--steps", 20, "--rounds", 1, "--out", "out"),
)


def only_row(folder: Path) -> dict[str, str]:
    (path,) = folder.glob("out/*/runs.csv")
    with path.open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    return row


@pytest.mark.parametrize("precision", ["amp-bf16", "amp-fp16", "bf16", "fp16"])
def test_precisions(start: Start, tmp_path: Path, precision: str) -> None:
    command = start(*SMALL, "--mode", "single", "--precision", precision)
    assert command.wait(120) == 0, command.err
    row = only_row(tmp_path)
    assert row["precision"] == precision
    assert (row["skipped_steps"] != "") == (precision == "amp-fp16")


@pytest.mark.parametrize(
    "options",
    [
        ("--zero",),
        ("--comm-hook", "fp16"),
        ("--comm-hook", "bf16"),
        ("--comm-hook", "powersgd"),
        ("--sync-batchnorm",),
        ("--accumulate", "3", "--optimizer", "adam"),
    ],
    ids=" ".join,
)
def test_options_of_ddp_over_nccl(start: Start, tmp_path: Path, options: tuple[str, ...]) -> None:
    command = start(*SMALL, "--mode", "ddp", "--gpus", 1, *options)
    assert command.wait(120) == 0, command.err
    assert only_row(tmp_path)["backend"] == "nccl"


def test_the_loss_arrives_without_a_wait(start: Start, tmp_path: Path) -> None:
    command = start(*SMALL, "--mode", "single", "--log-every", 1)
    assert command.wait(120) == 0, command.err
    assert "samples/s, loss " in command.err


@pytest.mark.timeout(240)
@pytest.mark.multigpu
@pytest.mark.parametrize("hook", ["none", "fp16", "bf16", "powersgd"])
def test_hooks_on_two_gpus(start: Start, tmp_path: Path, hook: str) -> None:
    options = ("--mode", "ddp", "--gpus", 2, "--comm-hook", hook, "--sync-batchnorm", "--zero")
    command = start(*SMALL, *options)
    assert command.wait(180) == 0, command.err
