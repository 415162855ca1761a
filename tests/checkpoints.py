"""A small model that has been trained for a few steps, and its checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from mgpubench.training.checkpoint import About, Best, Content
from mgpubench.training.models.builtin import tiny_cnn
from mgpubench.training.optimizer_state import optimizer_by_name

CLASSES = ("cat", "dog", "emu")

MakeOptimizer = Callable[[Any], Optimizer]


def sgd(parameters: Any) -> Optimizer:
    return SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)


def trained(
    steps: int = 2, make_optimizer: MakeOptimizer = sgd, seed: int = 0
) -> tuple[nn.Module, Optimizer]:
    """A tiny-cnn after some steps."""
    torch.manual_seed(seed)
    model = tiny_cnn(len(CLASSES))
    optimizer = make_optimizer(model.parameters())
    train(model, optimizer, range(steps))
    return model, optimizer


def train(model: nn.Module, optimizer: Optimizer, steps: range) -> None:
    """Steps on random images, the same for the same numbers."""
    for step in steps:
        images, labels = batch(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


def batch(step: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(step)
    images = torch.randn(4, 3, 32, 32, generator=random)
    return images, torch.randint(len(CLASSES), (4,), generator=random)


def about(epoch: int = 1, **changes: Any) -> About:
    values = {
        "model": "tiny-cnn",
        "classes": CLASSES,
        "image_size": 32,
        "epoch": epoch,
        "options": {"lr": 0.1, "optimizer": "sgd", "keep": 2, "pretrained": None},
    }
    return About(**{**values, **changes})


def content(
    model: nn.Module, optimizer: Optimizer, epoch: int = 1, best: Best | None = None
) -> Content:
    return Content(
        about=about(epoch, best=best),
        model=model.state_dict(),
        optimizer=optimizer_by_name(optimizer, model.named_parameters()),
        scaler={"scale": 1024.0, "_growth_tracker": 7},
    )


def small_content(epoch: int = 1, best: Best | None = None) -> Content:
    """The content of a small checkpoint, all of whose weights are the epoch."""
    model = nn.Linear(2, 2)
    nn.init.constant_(model.weight, epoch)
    nn.init.constant_(model.bias, epoch)
    return content(model, sgd(model.parameters()), epoch, best)


def same(one: object, other: object) -> bool:
    """Equal, bit by bit where they are tensors."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def same_content(one: Content, other: Content) -> bool:
    parts = ("model", "optimizer", "scaler")
    return one.about == other.about and all(
        same(getattr(one, part), getattr(other, part)) for part in parts
    )
