"""How weights are updated: the optimizer, and what belongs to it."""

from __future__ import annotations

from dataclasses import dataclass

from mgpubench.config.types import DEFAULT_OPTIMIZER, Optimizer


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How weights are updated. Settings that are not here are at torch's defaults."""

    optimizer: Optimizer = DEFAULT_OPTIMIZER
    lr: float
    weight_decay: float = 1e-4
    momentum: float = 0.9
    """Of sgd; the others have none."""
    nesterov: bool = False
    label_smoothing: float = 0.0
    clip_grad_norm: float | None = None
    """Largest norm of all gradients together; None: no limit."""


MEASURED_RATES: dict[Optimizer, float] = {"sgd": 0.01, "adam": 0.001, "adamw": 0.001}


def measured_recipe(optimizer: Optimizer) -> Recipe:
    """The recipe of the runs that measure."""
    return Recipe(optimizer=optimizer, lr=MEASURED_RATES[optimizer])
