"""Writes checkpoints until it is killed or the disk is full, and checks what is left.

    python -m tests.checkpoint_writer kill FOLDER ROUNDS
    python -m tests.checkpoint_writer fill FOLDER

It forks, so that torch is imported only once. It prints one JSON object.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from mgpubench.errors import BenchError
from mgpubench.results.checkpoint_files import (
    find_checkpoints,
    latest_checkpoint,
    remove_unfinished,
)
from mgpubench.training.checkpoint import Best, load
from mgpubench.training.checkpoint_folder import Checkpoints
from tests.checkpoints import content, sgd

KEEP = 2
EPOCHS_TO_BEST = 5
LONGEST_S = 0.15


@dataclass(frozen=True)
class Writer:
    """Writes one checkpoint after the other, all weights of each the number of its epoch."""

    model: nn.Module
    optimizer: Optimizer

    def write(self, folder: Checkpoints, begun: int) -> None:
        """Write until it is killed. Before the first one a byte goes to a file descriptor."""
        latest = latest_checkpoint(folder.folder)
        loaded = load(latest).about if latest else None
        best = loaded.best if loaded else None
        os.write(begun, b".")
        for epoch in itertools.count(loaded.epoch + 1 if loaded else 1):
            for parameter in self.model.parameters():
                nn.init.constant_(parameter, epoch)
            if epoch % EPOCHS_TO_BEST == 1:
                best = Best(top1=float(epoch), epoch=epoch)
            folder.write(content(self.model, self.optimizer, epoch, best))


def check(folder: Checkpoints) -> int:
    """Load all that is there. Returns the last epoch, 0 if there is none yet."""
    found = find_checkpoints(folder.folder)
    for epoch, path in found.items():
        loaded = load(path)
        assert loaded.about.epoch == epoch
        assert all(bool((weight == epoch).all()) for weight in loaded.model.values())
    # The last ones, the best one, the best one before, and one whose removal was interrupted.
    assert len(found) <= KEEP + 3
    if not found:
        return 0
    last = max(found)
    best = last - (last - 1) % EPOCHS_TO_BEST
    saved_best = load(found[last]).about.best
    assert saved_best is not None
    assert saved_best.epoch == best
    assert best in found
    assert set(range(max(1, last - KEEP + 1), last + 1)) <= set(found)
    return last


def make_writer() -> Writer:
    model = nn.Sequential(*(nn.Linear(300, 300) for _ in range(10)))  # 3.6 MB
    return Writer(model, sgd(model.parameters()))


def kill(folder: Checkpoints, rounds: int) -> dict[str, int]:
    """Kill a writer at random moments. Counts the rounds in which it was writing a file."""
    unfinished = last = 0
    writer = make_writer()  # here, since the first optimizer of a process takes seconds
    reading_end, writing_end = os.pipe()
    for _ in range(rounds):
        if not (child := os.fork()):
            signal.alarm(10)  # in case that its parent is killed
            writer.write(folder, writing_end)
        os.read(reading_end, 1)
        time.sleep(random.uniform(0.0, LONGEST_S))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        now = check(folder)
        assert now >= last
        last = now
        unfinished += len(remove_unfinished(folder.folder))
        assert remove_unfinished(folder.folder) == ()
    return {"unfinished": unfinished, "last": last}


def fill(folder: Checkpoints) -> dict[str, object]:
    """Write until the disk is full."""
    try:
        make_writer().write(Checkpoints(folder.folder, keep=1000), sys.stderr.fileno())
    except BenchError as error:
        last = max(find_checkpoints(folder.folder))
        names = sorted(path.name for path in folder.folder.iterdir())
        loaded = load(find_checkpoints(folder.folder)[last])
        assert all(bool((weight == last).all()) for weight in loaded.model.values())
        return {**vars(error), "exit_code": error.exit_code, "names": names}
    raise AssertionError


def main() -> None:
    torch.set_num_threads(1)  # threads do not survive a fork
    task, place, *rounds = sys.argv[1:]
    folder = Checkpoints(Path(place), KEEP)
    result: dict[str, Any] = kill(folder, int(rounds[0])) if task == "kill" else fill(folder)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
