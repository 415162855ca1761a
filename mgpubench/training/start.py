"""What a training begins with: a checkpoint, trained weights, or random ones."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from mgpubench.config.recipe import Recipe
from mgpubench.config.run_config import RunConfig
from mgpubench.config.train_config import TrainConfig
from mgpubench.training.checkpoint import Best, load
from mgpubench.training.devices import Part
from mgpubench.training.optimizer import make_optimizer, settings_of
from mgpubench.training.optimizer_state import load_optimizer_by_name
from mgpubench.training.preflight import make_on_meta
from mgpubench.training.pretrained import find_torchvision_weights, load_pretrained
from mgpubench.training.sent_file import send_file
from mgpubench.training.step import TrainStep
from mgpubench.training.technique import Wrapped
from mgpubench.training.weights import load_into


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What is behind a training when it begins."""

    epochs: int = 0
    best: Best | None = None
    load_s: float | None = None
    """Seconds to load the checkpoint; None without one."""


def begin(part: Part, config: TrainConfig, wrapped: Wrapped, step: TrainStep) -> Start:
    """Load what a training begins with into its model and optimizer.

    Other machines than that of rank 0 get the file first.
    """
    model, run = wrapped.plain.model, config.run
    began_s = time.perf_counter()
    if run.num_nodes > 1 and (file := _file_of(config)) is not None:
        send_file(part, file, wrapped.barrier)
    if config.resume_from is None:
        if config.options.pretrained is not None:
            file = config.options.pretrained_file
            load_pretrained(model, run.model, run.num_classes, file, wrapped.part_of)
        return Start()
    content = load(config.resume_from)
    load_into(model, content.model, part_of=wrapped.part_of)
    names = model.named_parameters()
    load_optimizer_by_name(step.optimizer, content.optimizer, names, wrapped.part_of)
    # The options of this training count, and not those that the checkpoint was trained with.
    for group in step.optimizer.param_groups:
        group.update(settings_of(step.recipe))
    if content.scaler is not None:
        step.scaler.load_state_dict(dict(content.scaler))
    load_s = time.perf_counter() - began_s
    return Start(epochs=content.about.epoch, best=content.about.best, load_s=load_s)


def _file_of(config: TrainConfig) -> Path | None:
    """What a training begins with: a file, or None for random weights."""
    if config.resume_from is not None or config.options.pretrained is None:
        return config.resume_from
    return config.options.pretrained_file or find_torchvision_weights(config.run.model)


def check_start(checkpoint: Path, run: RunConfig, recipe: Recipe) -> None:
    """Find out before a training whether a checkpoint fits its model and its optimizer.

    Raises:
        RequestRefused: if it does not.
    """
    content = load(checkpoint)
    model = make_on_meta(run)  # only names and shapes are compared
    load_into(model, content.model, source=checkpoint)
    optimizer = make_optimizer(model.parameters(), recipe)
    load_optimizer_by_name(optimizer, content.optimizer, model.named_parameters())
