"""The final configuration of a training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mgpubench.config.run_config import RunConfig
from mgpubench.config.train_request import TrainOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """One training, on one number of devices, in one mode. Every field is final."""

    run: RunConfig
    """Mode, devices, model, data and precision. Its `steps` are those of an epoch."""
    options: TrainOptions
    classes: tuple[str, ...]
    """By name, in the order of their numbers."""
    num_samples: int
    """Images to train on."""
    dataset_digest: str
    """The digest of the folder that they are from."""
    checkpoints: Path
    """Folder of the checkpoints."""
    resume_from: Path | None = None
    """Checkpoint to go on from."""
    eval_listing: Path | None = None
    """File with the samples to evaluate on."""

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer updates in an epoch. The incomplete last global batch is dropped."""
        return self.num_samples // self.run.global_batch

    @property
    def dropped_images(self) -> int:
        """Images of the incomplete last global batch."""
        return self.num_samples % self.run.global_batch

    def evaluates(self, epoch: int) -> bool:
        """True if there is an evaluation after an epoch, counted from 1."""
        due = epoch % self.options.eval_every == 0 or epoch == self.options.epochs
        return self.eval_listing is not None and due

    def saves(self, epoch: int) -> bool:
        """True if there is a checkpoint after an epoch, counted from 1."""
        return epoch % self.options.checkpoint_every == 0 or epoch == self.options.epochs
