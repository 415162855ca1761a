"""Trainings that end before their time: what the user sees, and that they can be resumed.

Two ranks train a tiny model with BatchNorm, and are hurt in the second epoch or later.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from mgpubench.launch.supervisor import Supervisor
from mgpubench.results.checkpoint_files import CHECKPOINTS, find_checkpoints, latest_checkpoint
from mgpubench.training.checkpoint import load
from tests.conftest import Here
from tests.faults.cases import Hurt, Scene, hurt_when_training
from tests.faults.test_interruption import interrupt
from tests.faults.test_matrix import kill_a_loader_worker, send
from tests.faults.test_surroundings import Report, unshared
from tests.hurtmodels import FAULT_TIME, note_time
from tests.processes import Command, all_processes, wait_until

pytestmark = pytest.mark.faults

TRAIN = (
    *("train", "--data", "photos", "--device", "cpu", "--model", "tiny-cnn", "--image-size", 32),
    *("--global-batch", 6, "--mode", "ddp", "--gpus", 2, "--out", "out"),
)
LAST = "epochs and checkpoints before; `--resume` goes on"


@dataclass(frozen=True)
class End:
    """What is done to a training, and what the user sees of it."""

    fault: str
    hurt: Hurt
    says: str
    exit_code: int = 1
    workers: int = 0
    mode: str = "ddp"

    def __str__(self) -> str:
        return self.fault if self.mode == "ddp" else f"{self.fault}-{self.mode}"


ENDS = (
    End("Ctrl-C (SIGINT)", interrupt(signal.SIGINT), "error: interrupted by SIGINT", 130),
    End("SIGTERM", interrupt(signal.SIGTERM), "error: interrupted by SIGTERM", 143),
    End(
        "a rank is killed (SIGKILL)",
        send(signal.SIGKILL),
        r"error: ddp x2: rank 1 \(pid \d+\) was killed by signal 9 \(SIGKILL\)",
    ),
    End(
        "a rank is killed (SIGKILL)",
        send(signal.SIGKILL),
        r"error: fsdp x2: rank 1 \(pid \d+\) was killed by signal 9 \(SIGKILL\)",
        mode="fsdp",
    ),
    End(
        "a loader worker is killed",
        kill_a_loader_worker,
        r"error: ddp x2: rank \d: RuntimeError: (a )?DataLoader worker .*(killed|exited unexpect)",
        workers=1,
    ),
)


def folder_in(test: Path) -> Path:
    """The only training of a test."""
    (folder,) = (test / "out").iterdir()
    return folder


def in_a_later_epoch(hurt: Hurt) -> Hurt:
    """Hurt it only once the first epoch has its checkpoint, and note when."""

    def wait_and_hurt(scene: Scene) -> None:
        folder = folder_in(scene.out.parent)
        wait_until(lambda: latest_checkpoint(folder / CHECKPOINTS), 20, "a checkpoint")
        note_time()
        hurt(scene)

    return wait_and_hurt


@pytest.mark.parametrize("end", ENDS, ids=str)
def test_a_training_that_ends_in_a_later_epoch_goes_on_from_its_last_checkpoint(
    run_here: Callable[..., Here],
    supervisor: Supervisor,
    photos: Callable[..., Path],
    tmp_path: Path,
    report: Report,
    end: End,
) -> None:
    root = photos(cat=9, dog=11)
    times = hurt_when_training(
        in_a_later_epoch(end.hurt), supervisor, lambda ranks: Scene(ranks, root, tmp_path / "out")
    )
    options = ("--mode", end.mode, "--epochs", 100_000, "--workers-per-gpu", end.workers)
    result = run_here(*TRAIN, *options, cwd=tmp_path)
    assert times.error is None
    since_s = float(FAULT_TIME.read_text())
    facts = {"code": end.exit_code, "mode": end.mode, "kept": LAST, "since_s": since_s}
    report(end.fault, result, end.says, **facts)
    wait_until(lambda: not [p for p in all_processes() if p.pid in times.seen], 5, "their end")
    folder = folder_in(tmp_path)
    again = f"mgpubench train --resume {folder.relative_to(tmp_path)}"
    assert f"go on from the last checkpoint with: {again}" in result.err

    before = {epoch: path.read_bytes() for epoch, path in checkpoints(folder).items()}
    last = max(before)
    resumed = run_here(
        *("train", "--resume", "last", "--out", "out", "--epochs", last + 1), cwd=tmp_path
    )
    assert resumed.exit_code == 0, resumed.err
    after = checkpoints(folder)
    assert max(after) == last + 1
    assert after[last].read_bytes() == before[last]
    assert not list((folder / CHECKPOINTS).glob(".*"))


def checkpoints(folder: Path) -> dict[int, Path]:
    return find_checkpoints(folder / CHECKPOINTS)


def test_a_loss_that_is_not_finite_ends_a_training(
    run_here: Callable[..., Here], photos: Callable[..., Path], tmp_path: Path, report: Report
) -> None:
    """In the second epoch: the checkpoint of the first is kept as it was."""
    photos(cat=9, dog=11)
    FAULT_TIME.unlink(missing_ok=True)
    model = ("--model", "tests.hurtmodels:loses_its_mind", "--log-every", 1)
    result = run_here(*TRAIN, *model, "--epochs", 3, cwd=tmp_path)
    says = "error: the loss of epoch 2 is nan"
    since_s = float(FAULT_TIME.read_text())
    report("the loss is not finite", result, says, code=1, kept=LAST, since_s=since_s)
    found = checkpoints(folder_in(tmp_path))
    assert list(found) == [1]
    assert load(found[1]).about.epoch == 1


def test_a_disk_that_fills_up_at_a_checkpoint_keeps_those_before(
    photos: Callable[..., Path], tmp_path: Path, report: Report
) -> None:
    """Rank 1 waits at the barrier meanwhile, and is ended."""
    photos(cat=9, dog=11)
    (tmp_path / "out").mkdir()
    # The folder is copied from inside, since the mount ends with the process.
    script = 'mount -t tmpfs -o size=3m tmpfs out; "$@"; code=$?; cp -r out kept; exit $code'
    prefix = (*unshared("-m", "true")[:2], "sh", "-c", script, "sh")
    options = ("--epochs", 1000, "--keep", 1000, "--workers-per-gpu", 0)
    command = Command(*TRAIN, *options, cwd=tmp_path, prefix=prefix)
    says = "error: out/.*/checkpoints/epoch-.*pt cannot be written: No space left on device"
    report("the disk is full at a checkpoint", command, says, code=1, kept=LAST)
    shutil.rmtree(tmp_path / "out")
    os.rename(tmp_path / "kept", tmp_path / "out")
    folder = folder_in(tmp_path)
    found = checkpoints(folder)
    assert list(found) == list(range(1, len(found) + 1))
    assert load(found[len(found)]).about.epoch == len(found)
    assert sorted(os.listdir(folder / CHECKPOINTS)) == [path.name for path in found.values()]
