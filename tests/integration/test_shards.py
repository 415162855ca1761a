"""What replicas and ranks really get, on CPU replicas."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SHOW = ("run", "--show-shards", "--device", "cpu", "--model", "tiny-cnn", "--image-size", "32")


def parts(out: str, label: str) -> list[list[str]]:
    """Rank, device and samples of the lines of one configuration."""
    lines = [line.split() for line in out.splitlines() if line.startswith(f"{label} ")]
    return [[line[2], line[4], line[5]] for line in lines]


def test_every_device_gets_an_equal_part(run_here: Callable[..., Any], tmp_path: Path) -> None:
    shown = run_here(
        *SHOW, "--mode", "single,dp,ddp", "--gpus", "3", "--global-batch", "90", cwd=tmp_path
    )
    assert shown.exit_code == 0
    assert parts(shown.out, "single x1") == [["0", "0", "90"]]
    assert parts(shown.out, "dp x3") == [["0", str(replica), "30"] for replica in range(3)]
    assert parts(shown.out, "ddp x3") == [[str(rank), str(rank), "30"] for rank in range(3)]
    assert "30 of 90" in shown.out
    assert "30 x 3 x 32 x 32" in shown.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("gpus", "batch", "sizes"),
    [(8, 100, [13] * 7 + [9]), (4, 90, [23, 23, 23, 21])],
)
def test_dp_gives_the_last_replica_the_rest(
    gpus: int, batch: int, sizes: list[int], run_here: Callable[..., Any], tmp_path: Path
) -> None:
    arguments = ("--mode", "dp,ddp", "--gpus", gpus, "--global-batch", batch)
    shown = run_here(*SHOW, *arguments, cwd=tmp_path)
    assert shown.exit_code == 0
    assert [int(samples) for _, _, samples in parts(shown.out, f"dp x{gpus}")] == sizes
    assert f"note: ddp x{gpus}: left out, since every rank takes an equal batch" in shown.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpus", "2,4", "--global-batch", "9"), "--global-batch 9 leaves a rest"),
        (("--dry-run",), "--show-shards and --dry-run exclude each other"),
        (("--resume", "x"), "--show-shards and --resume exclude each other"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    arguments: tuple[str, ...], message: str, run_here: Callable[..., Any], tmp_path: Path
) -> None:
    refused = run_here(*SHOW, *arguments, cwd=tmp_path)
    assert refused.exit_code == 2
    assert refused.err.startswith(f"error: {message}\n")
