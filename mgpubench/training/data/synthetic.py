"""Random images and labels, made before the first step."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import SYNTHETIC
from mgpubench.training.data.batch import Batch, Feed
from mgpubench.training.devices import Part

SYNTHETIC_BATCHES = 4
"""Different global batches, used in turn, so that the model cannot memorise one."""


def synthetic_feed(part: Part) -> Feed:
    """Random batches on the device, or in pinned host memory for `synthetic-host`."""
    batches = [
        micro_batch
        for index in range(SYNTHETIC_BATCHES)
        for micro_batch in _synthetic_batches(part, index)
    ]
    return Feed(itertools.cycle(batches), set())


def _synthetic_batches(part: Part, index: int) -> Iterator[Batch]:
    """The micro-batches of a step, made device by device: all modes train on the same images."""
    shards = [_shard(part.config, number, index) for number in part.device_numbers]
    size = part.config.micro_batch_per_device
    for start in range(0, part.config.batch_per_device, size):
        pieces = [tuple(each[start : start + size] for each in shard) for shard in shards]
        images, labels = (torch.cat(parts) for parts in zip(*pieces, strict=True))
        yield _where_it_belongs(part, images, labels)


def _where_it_belongs(part: Part, images: Tensor, labels: Tensor) -> Batch:
    """On the device, or in host memory."""
    if part.config.data == SYNTHETIC:
        return images.to(part.device), labels.to(part.device)
    if part.device.type == "cuda":
        return images.pin_memory(), labels.pin_memory()
    return images, labels


def _shard(config: RunConfig, device_number: int, index: int) -> Batch:
    seed = random.Random(f"{config.seed}/{device_number}/{index}").getrandbits(63)
    generator = torch.Generator().manual_seed(seed)
    shape = (config.batch_per_device, 3, config.image_size, config.image_size)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, config.num_classes, shape[:1], generator=generator)
    return images, labels
