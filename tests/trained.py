"""A few steps of training as each mode makes them, with the weights as the result; in workers."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mgpubench.config.run_config import RunConfig
from mgpubench.training.data.loader import open_feed
from mgpubench.training.devices import Part
from mgpubench.training.rank import make_part
from mgpubench.training.step import TrainStep
from mgpubench.training.technique import Wrapped
from mgpubench.training.torch_settings import set_up_process


class Dropping(nn.Module):
    """Its logits are the dropout mask of ones, times a weight that begins as 1."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.masks: list[list[float]] = []

    def forward(self, images: Tensor) -> Tensor:
        """Logits that do not depend on the images."""
        mask = nn.functional.dropout(torch.ones(len(images), 10))
        self.masks.append(mask.flatten().tolist())
        return mask * self.weight


def dropping() -> nn.Module:
    """For `--model tests.trained:dropping`."""
    return Dropping()


class Overflowing(nn.Module):
    """Gradients that overflow in the steps named in `at`, and a loss that is then infinite."""

    def __init__(self, at: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 10)
        self.at = at
        self.step = 0

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        self.step += 1
        small = nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)
        logits: Tensor = self.layer(small)
        return logits * float("inf") if self.step in self.at else logits


def overflows_first() -> nn.Module:
    """In the first step, and in the third."""
    return Overflowing((1, 3))


def overflows_last() -> nn.Module:
    """In the last of 1 + 4 steps."""
    return Overflowing((5,))


def overflows_always() -> nn.Module:
    """In every step."""
    return Overflowing(tuple(range(1, 100)))


def some_steps(
    config: RunConfig, rank: int, runner: str, folder: Path, listing: Path
) -> dict[str, Any]:
    """Weights, buffers and losses after all steps of a run."""
    part = make_part(config, rank, folder, listing)
    set_up_process(part)
    found: dict[str, Any] = importlib.import_module(runner).run(part, _work)
    return found


def _work(part: Part, wrapped: Wrapped) -> dict[str, Any]:
    feed, step = open_feed(part), TrainStep(wrapped, part)
    losses = [float(step(feed.batches)) for _ in range(part.config.total_steps)]
    return {
        "losses": losses,
        "weights": _numbers(dict(wrapped.plain.named_parameters()), wrapped),
        "buffers": _numbers(dict(wrapped.plain.named_buffers()), wrapped),
        "types": sorted({str(parameter.dtype) for parameter in wrapped.plain.parameters()}),
        "masks": getattr(wrapped.plain.model, "masks", []),
        "state_bytes": _state_bytes(step.optimizer),
    }


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Size of the tensors that this rank keeps for the optimizer."""
    own = getattr(optimizer, "optim", optimizer)
    tensors = [value for state in own.state.values() for value in state.values()]
    own_parts = (getattr(t, "_local_tensor", t) for t in tensors if isinstance(t, Tensor))
    return sum(part.numel() * part.element_size() for part in own_parts)


def _numbers(tensors: dict[str, Tensor], wrapped: Wrapped) -> dict[str, list[float]]:
    whole = {name: wrapped.whole_of(tensor.detach()) for name, tensor in tensors.items()}
    return {name: tensor.double().flatten().tolist() for name, tensor in whole.items()}
