"""Random resized crop and flip of an image, as the tutorial's transforms do."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2 import functional

SCALE = (0.08, 1.0)
"""Share of the area of an image that a crop has (Szegedy et al., CVPR 2015)."""
RATIO = (3 / 4, 4 / 3)
FLIP_SHARE = 0.5


def make_augmentation(seed: int, image_size: int) -> Callable[[Tensor, int, int], Tensor]:
    """A function of (image, epoch, index) that crops and flips a uint8 image (3, height, width).

    What it does depends only on the seed, the epoch and the index, and not on who loads the image.
    """

    def augment(image: Tensor, epoch: int, index: int) -> Tensor:
        _seed_default_generator(f"{seed}/{epoch}/{index}")
        place = RandomResizedCrop.get_params(image, list(SCALE), list(RATIO))
        size = [image_size, image_size]
        cropped: Tensor = functional.resized_crop(image, *place, size, antialias=True)
        if torch.rand(()).item() < FLIP_SHARE:
            cropped = functional.horizontal_flip(cropped)
        return cropped

    return augment


def _seed_default_generator(seed: str) -> None:
    """Seed the generator that the transforms draw from."""
    # This takes a microsecond; torch.manual_seed, which also seeds the devices, takes 140.
    torch.default_generator.manual_seed(random.Random(seed).getrandbits(63))
