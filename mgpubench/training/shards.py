"""What every replica and rank really gets of a batch, seen inside the model's forward pass."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from mgpubench.config.run_config import RunConfig
from mgpubench.results.shard import Shard, ShardedBatch
from mgpubench.training.data.loader import open_feed
from mgpubench.training.devices import Part
from mgpubench.training.rank import make_part
from mgpubench.training.technique import Wrapped
from mgpubench.training.torch_settings import set_up_process
from mgpubench.training.trainable import TrainableModel

Seen = tuple[torch.device, int, tuple[int, ...]]
"""Device, place in the batch that was cut up, and shape."""


def show_rank(
    config: RunConfig, rank: int, runner: str, folder: Path, batch: ShardedBatch
) -> list[Shard]:
    """Let a runner take one micro-batch through the model, and report who got what.

    The batch may leave a rest: then the last images of this process's own are cut off.
    """
    part = make_part(config, rank, folder, batch.listing)
    set_up_process(part)

    def work(part: Part, wrapped: Wrapped) -> list[Shard]:
        return shards_of_batch(part, wrapped, batch.samples)

    shards: list[Shard] = importlib.import_module(runner).run(part, work)
    return shards


def shards_of_batch(part: Part, wrapped: Wrapped, samples: int) -> list[Shard]:
    """The parts into which the technique cuts this process's images."""
    images, _ = next(open_feed(part).batches)
    if part.config.world_size == 1:
        images = images[:samples]
    seen: list[Seen] = []

    def note(module: nn.Module, inputs: Any) -> None:
        # Also in replicas, which are other objects, and in threads: appending is atomic.
        if isinstance(module, TrainableModel):
            seen.append(_where(inputs[0]))

    hook = register_module_forward_pre_hook(note)
    try:
        with torch.no_grad():
            wrapped.model.eval()(images.to(part.device))
    finally:
        hook.remove()
    return [_shard(part, number, each) for number, each in enumerate(sorted(seen, key=_order))]


def _where(images: Tensor) -> Seen:
    return images.device, int(images.storage_offset()), tuple(images.shape)


def _order(seen: Seen) -> tuple[int, int]:
    device, offset, _ = seen
    return device.index or 0, offset


def _shard(part: Part, number: int, seen: Seen) -> Shard:
    device, _, shape = seen
    on_cpu = device.type == "cpu"
    name = f"replica {part.device_numbers[number]}" if on_cpu else str(device)
    return Shard(rank=part.rank, device=name, shape=shape)
