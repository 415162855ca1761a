"""Weights that go from a sharded model to a plain one and back; run in workers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mgpubench.config.run_config import RunConfig
from mgpubench.training.data.loader import open_feed
from mgpubench.training.devices import Part
from mgpubench.training.evaluation import Counts, evaluate
from mgpubench.training.optimizer import make_optimizer
from mgpubench.training.optimizer_state import load_optimizer_by_name, optimizer_by_name
from mgpubench.training.rank import make_part
from mgpubench.training.sharding import units_of, whole_model
from mgpubench.training.step import TrainStep
from mgpubench.training.technique import Wrapped
from mgpubench.training.torch_settings import set_up_process
from mgpubench.training.trainable import build_model
from mgpubench.training.weights import load_into
from tests.checkpoints import same

State = dict[str, Any]


class Uneven(nn.Module):
    """Weights with fewer rows than ranks, and two that layers share, in one block and in two."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.blocks[1].second.weight = self.blocks[1].first.weight
        self.blocks[3].first.weight = self.blocks[2].first.weight
        self.head = nn.Linear(12, 10)
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("offset", torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        hidden = nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.head(hidden * self.scale + self.offset)
        return logits


class Block(nn.Module):
    """Two layers with as many parameters as a unit needs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)
        self.wide = nn.Sequential(nn.Linear(12, 2**14), nn.ReLU(), nn.Linear(2**14, 12))

    def forward(self, hidden: Tensor) -> Tensor:
        """As many numbers as it gets."""
        result: Tensor = self.wide(self.second(self.first(hidden)))
        return result


def uneven() -> nn.Module:
    """For `--model tests.sharded:uneven`."""
    return Uneven()


def round_trip(
    config: RunConfig, rank: int, runner: str, folder: Path, listing: Path
) -> dict[str, Any]:
    """Whether weights and optimizer are the same bits in a plain model, and back in their own."""
    return _run(config, rank, runner, folder, _round_trip)


def _run(
    config: RunConfig, rank: int, runner: str, folder: Path, work: Callable[[Part, Wrapped], Any]
) -> dict[str, Any]:
    part = make_part(config, rank, folder, folder)
    set_up_process(part)
    found: dict[str, Any] = importlib.import_module(runner).run(part, work)
    return found


def _round_trip(part: Part, wrapped: Wrapped) -> dict[str, Any]:
    feed, step = open_feed(part), TrainStep(wrapped, part)
    for _ in range(2):
        step(feed.batches)
    model = wrapped.plain.model
    weights, state = _whole(wrapped, step.optimizer)

    plain = build_model(part)
    optimizer = make_optimizer(plain.parameters(), step.recipe)
    load_into(plain.model, weights)
    load_optimizer_by_name(optimizer, state, plain.model.named_parameters())
    in_plain = same(plain.model.state_dict(), weights)
    state_in_plain = same(optimizer_by_name(optimizer, plain.model.named_parameters()), state)

    step(feed.batches)  # both are others now
    changed = not same(_whole(wrapped, step.optimizer)[0], weights)
    load_into(model, plain.model.state_dict(), part_of=wrapped.part_of)
    again = optimizer_by_name(optimizer, plain.model.named_parameters())
    load_optimizer_by_name(step.optimizer, again, model.named_parameters(), wrapped.part_of)
    back, state_back = _whole(wrapped, step.optimizer)
    return {
        "units": len(units_of(plain)),
        "in_plain": in_plain,
        "state_in_plain": state_in_plain,
        "changed": changed,
        "back": same(back, weights),
        "state_back": same(state_back, state),
        "finite": all(bool(tensor.isfinite().all()) for tensor in back.values()),
    }


def _whole(wrapped: Wrapped, optimizer: torch.optim.Optimizer) -> tuple[State, State]:
    """Whole weights, and the whole state of the optimizer by name."""
    model = wrapped.plain.model
    weights = {name: wrapped.whole_of(t).clone() for name, t in model.state_dict().items()}
    whole_of = partial(_whole_copy, wrapped)
    return weights, optimizer_by_name(optimizer, model.named_parameters(), whole_of)


def _whole_copy(wrapped: Wrapped, tensor: Tensor, own: Tensor | None = None) -> Tensor:
    return wrapped.whole_of(tensor).clone()


def evaluate_between_steps(
    config: RunConfig, rank: int, runner: str, folder: Path, listing: Path
) -> dict[str, Any]:
    """Counts of two evaluations in which only rank 0 has images, and the losses around them."""
    return _run(config, rank, runner, folder, _evaluate_between_steps)


def _evaluate_between_steps(part: Part, wrapped: Wrapped) -> dict[str, Any]:
    feed, step = open_feed(part), TrainStep(wrapped, part)
    counts: list[Counts] = []
    losses = []
    for _ in range(2):
        losses.append(float(step(feed.batches)))
        counts.append(evaluate(part, wrapped, _images_of_rank_0(part), 10))
    losses.append(float(step(feed.batches)))
    copy = whole_model(part, wrapped)
    return {
        "samples": [count.samples for count in counts],
        "top1": [count.top1 for count in counts],
        "losses": losses,
        "is_training": wrapped.plain.training,
        "is_apart": copy is not wrapped.plain,
    }


def _images_of_rank_0(part: Part) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(0 if part.rank else 3):
        shape = (5, 3, part.config.image_size, part.config.image_size)
        images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        yield images, torch.randint(0, 10, shape[:1], generator=generator)
