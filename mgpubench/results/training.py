"""The columns of a training: a row of epochs.csv, and a row of losses.csv."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from pathlib import Path

EPOCHS_CSV = "epochs.csv"
LOSSES_CSV = "losses.csv"


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochRecord:
    """One epoch. Unknown is None."""

    schema_version: int
    session_id: str = ""
    epoch: int
    """From 1."""
    mode: str
    effective_mode: str = ""
    num_devices: int
    global_batch: int
    samples: int
    """Images trained on."""
    dropped_images: int
    """Images of the incomplete last global batch."""
    bad_images: int | None = None
    """Different images that could not be read and were replaced by others."""
    train_s: float
    """From the first step to the last, synchronised; without evaluation and checkpoint."""
    throughput_samples_per_s: float
    train_loss: float | None = None
    """Mean over all samples of the epoch."""
    lr: float
    """Of the last step."""
    eval_samples: int | None = None
    top1: float | None = None
    """Share of the evaluated images whose class was the likeliest, 0 to 1."""
    top5: float | None = None
    """Share whose class was among the five likeliest; None with five classes or fewer."""
    eval_s: float | None = None
    checkpoint_save_s: float | None = None
    checkpoint_load_s: float | None = None
    skipped_steps: int | None = None
    """Updates that the GradScaler skipped; None without it."""
    sitting: int = 1
    device_type: str = ""
    device_names: str = ""
    """With counts. Like the columns around it, it may change when a training is resumed."""
    machine: str = ""
    loader_workers: int | None = None
    """Of all ranks together."""
    torch_version: str = ""
    num_nodes: int | None = None
    """Machines that took part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossRecord:
    """One line of loss: the mean over all samples and ranks since the line before."""

    schema_version: int
    epoch: int
    step: int
    """In the epoch, from 1."""
    samples: int
    """Over which the mean is."""
    loss: float | None
    """None if it was not finite."""
    lr: float
    sitting: int = 1


TRAINING_FILES = {
    EPOCHS_CSV: tuple(field.name for field in fields(EpochRecord)),
    LOSSES_CSV: tuple(field.name for field in fields(LossRecord)),
}
"""The CSV files of a training, and their columns."""


def last_sitting(folder: Path) -> int:
    """The sitting of the last row of epochs.csv; 1 if there is none.

    Raises:
        ValueError: if the column does not hold numbers.
        OSError: if the file cannot be read.
    """
    with open(folder / EPOCHS_CSV, encoding="utf-8", newline="") as file:
        return max((int(row["sitting"]) for row in csv.DictReader(file)), default=1)
