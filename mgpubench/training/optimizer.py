"""The optimizer of a recipe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from mgpubench.config.recipe import Recipe

KINDS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """What the optimizer of a recipe is made with."""
    settings: dict[str, Any] = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    if recipe.optimizer == "sgd":
        settings |= {"momentum": recipe.momentum, "nesterov": recipe.nesterov}
    return settings


def make_optimizer(
    parameters: Iterable[nn.Parameter], recipe: Recipe, *, zero: bool = False
) -> torch.optim.Optimizer:
    """An optimizer; with `zero` each rank keeps the state of a part of the parameters."""
    kind = KINDS[recipe.optimizer]
    settings = settings_of(recipe)
    if not zero:
        return kind(parameters, **settings)
    # Here and not above: it needs torch.distributed, which may be missing.
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(parameters, kind, **settings)
