"""The order of the images: the same for every number of devices and every mode.

An epoch is one permutation of the images, drawn from the seed and the number of the epoch, and cut
into global batches. The incomplete last one is dropped. Device d of N takes the d-th part of each
global batch in one piece, and a part is cut into micro-batches in the same way. So DataParallel,
which cuts its batch into pieces, gives a device the same images as DDP gives its rank.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Sampler

Place = tuple[int, int]
"""Epoch, and number of an image in the listing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """How the images of an epoch are shared out, and which part a process takes."""

    num_images: int
    num_devices: int
    accumulate: int
    micro_batch_per_device: int
    device_numbers: range
    """Of this process, among all devices."""

    @property
    def global_batch(self) -> int:
        """Images that all devices together take in a step."""
        return self.num_devices * self.accumulate * self.micro_batch_per_device

    @property
    def steps(self) -> int:
        """Whole global batches in an epoch."""
        return self.num_images // self.global_batch

    def micro_batches(self, order: Tensor) -> Iterator[Tensor]:
        """The micro-batches of this process, one after the other, from all images in order."""
        whole = order[: self.steps * self.global_batch]
        parts = whole.view(
            self.steps, self.num_devices, self.accumulate, self.micro_batch_per_device
        )
        own = parts[:, self.device_numbers.start : self.device_numbers.stop]
        for step in own:
            yield from step.transpose(0, 1).flatten(1)


class ImageOrder(Sampler[list[Place]]):
    """A batch sampler: the micro-batches of a process, epoch after epoch, without a pause between.

    It says which epoch an image is for, since loader workers begin with the next one early.
    """

    def __init__(self, cut: Cut, seed: int, epochs: Iterable[int] | None = None) -> None:
        self._cut = cut
        self._seed = seed
        self._epochs = itertools.count() if epochs is None else epochs

    def __iter__(self) -> Iterator[list[Place]]:
        """The epochs and numbers of the images of each micro-batch."""
        for epoch in self._epochs:
            order = epoch_order(self._cut.num_images, self._seed, epoch)
            for images in self._cut.micro_batches(order):
                yield [(epoch, image) for image in images.tolist()]


def epoch_order(num_images: int, seed: int, epoch: int) -> Tensor:
    """All images in the order of an epoch."""
    drawn = random.Random(f"{seed}/{epoch}").getrandbits(63)
    return torch.randperm(num_images, generator=torch.Generator().manual_seed(drawn))
