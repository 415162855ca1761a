"""Which trainings are equal work, so that they may be compared with each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from mgpubench.analysis.groups import NAMELESS_CPUS, device_models, python_minor
from mgpubench.machine.environment import environment_digest
from mgpubench.results.read_trainings import Training
from mgpubench.results.training import EpochRecord

CHANGED = " then "
"""Between the values of something that changed when a training was resumed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingGroup:
    """What trainings must have in common to be equal work. Unknown is None or empty.

    Machine, devices and torch may change when a training is resumed. All their values are here
    then, so that such a training is compared only with one that changed in the same way. Loader
    workers are not here: their default depends on the number of devices.
    """

    machine: str
    device_models: str
    device_type: str
    model: str
    num_parameters: int | None
    data: str
    evaluation: str
    eval_every: int
    """Since it decides when an accuracy is seen first."""
    image_size: int | None
    precision: str
    optimizer: str
    lr: float
    momentum: float | None
    """None, like `nesterov`, for optimizers that do not have it."""
    nesterov: bool | None
    weight_decay: float
    lr_schedule: str
    schedule_epochs: int | None
    """Planned epochs, if the learning rate depends on them."""
    warmup_epochs: float
    label_smoothing: float
    clip_grad_norm: float | None
    global_batch: int
    accumulate: int
    augment: bool
    skip_bad_images: bool
    weights: str
    """What it began with."""
    seed: int
    deterministic: bool
    channels_last: bool
    compiled: bool
    torch_version: str
    cuda_version: str
    nccl_version: str
    driver_version: str
    python: str
    environment: str
    model_digest: str
    dataset_digest: str
    evaluation_digest: str


TRAINING_KEY = tuple(group_field.name for group_field in fields(TrainingGroup))


def training_group(training: Training) -> TrainingGroup:
    """The work of a training, as far as it must be equal in a fair comparison."""
    facts, epochs = training.facts, training.epochs
    has_momentum = facts.optimizer == "sgd"
    derived: dict[str, Any] = {
        "machine": _machine(training),
        "device_models": _device_models(epochs),
        "device_type": values(epochs, "device_type"),
        "momentum": facts.momentum if has_momentum else None,
        "nesterov": facts.nesterov if has_momentum else None,
        "schedule_epochs": facts.epochs if facts.lr_schedule == "cosine" else None,
        "global_batch": epochs[0].global_batch,
        "torch_version": values(epochs, "torch_version"),
        "python": python_minor(facts.python_version),
        "environment": environment_digest(dict(facts.environment)),
    }
    plain = {name: getattr(facts, name) for name in TRAINING_KEY if name not in derived}
    return TrainingGroup(**plain, **derived)


def _machine(training: Training) -> str:
    """The machine, and what keeps trainings apart whose machine could be any."""
    machine, models = values(training.epochs, "machine"), _device_models(training.epochs)
    if machine and models not in NAMELESS_CPUS:
        return machine
    return f"{machine or 'unknown'} (training {training.facts.session_id})"


def _device_models(epochs: Sequence[EpochRecord]) -> str:
    return CHANGED.join(dict.fromkeys(device_models(epoch.device_names) for epoch in epochs))


def values(epochs: Sequence[EpochRecord], column: str) -> str:
    """The values of a column in the order of the epochs, each once; empty if unknown."""
    known = (getattr(epoch, column) for epoch in epochs)
    return CHANGED.join(dict.fromkeys("" if value is None else str(value) for value in known))
