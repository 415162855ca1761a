"""Batches: their form, their order, which rank gets which, and that they never end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mgpubench.config.run_config import RunConfig
from mgpubench.training.data.listing import list_images
from mgpubench.training.data.loader import open_feed
from mgpubench.training.devices import Part

Make = Callable[..., RunConfig]
PartOf = Callable[..., Part]


@pytest.mark.parametrize("data", ["synthetic", "synthetic-host"])
def test_synthetic_batches_are_uint8_images_and_labels(
    cpu_config: Make, part_of: PartOf, data: str
) -> None:
    config = cpu_config(data=data, batch_per_device=3, image_size=20)
    feed = open_feed(part_of(config))
    images, labels = next(feed.batches)
    assert images.shape == (3, 3, 20, 20)
    assert images.dtype == torch.uint8
    assert labels.shape == (3,)
    assert labels.dtype == torch.int64
    assert 0 <= int(labels.min()) <= int(labels.max()) < 1000


def test_ranks_of_ddp_share_the_global_batch_of_dp(cpu_config: Make, part_of: PartOf) -> None:
    dp = cpu_config(mode="dp", num_devices=2)
    ddp = cpu_config(mode="ddp", num_devices=2)
    whole, labels = next(open_feed(part_of(dp)).batches)
    parts = [next(open_feed(part_of(ddp, rank)).batches) for rank in (0, 1)]
    assert torch.equal(whole, torch.cat([images for images, _ in parts]))
    assert torch.equal(labels, torch.cat([part for _, part in parts]))
    assert not torch.equal(parts[0][0], parts[1][0])


def test_another_seed_gives_other_images(cpu_config: Make, part_of: PartOf) -> None:
    batches = [
        next(open_feed(part_of(config)).batches)[0]
        for config in (cpu_config(seed=0), cpu_config(seed=0), cpu_config(seed=1))
    ]
    assert torch.equal(batches[0], batches[1])
    assert not torch.equal(batches[0], batches[2])


@pytest.fixture
def listing(photos: Callable[..., Path], tmp_path: Path) -> Path:
    """Nine images: five cats and four dogs."""
    path = tmp_path / "listing.json"
    list_images(photos(cat=5, dog=4)).save_samples(path)
    return path


def folder_config(make: Make, **changes: object) -> RunConfig:
    return make(data="photos", workers_per_device=0, workers_per_rank=0, **changes)


def test_a_folder_gives_its_classes_and_crops(
    cpu_config: Make, part_of: PartOf, listing: Path
) -> None:
    config = folder_config(cpu_config, batch_per_device=9, image_size=16)
    feed = open_feed(part_of(config, listing=listing))
    images, labels = next(feed.batches)
    assert images.shape == (9, 3, 16, 16)
    assert images.dtype == torch.uint8
    assert sorted(labels.tolist()) == [0] * 5 + [1] * 4


def test_a_folder_is_cycled_in_a_new_order_each_epoch(
    cpu_config: Make, part_of: PartOf, listing: Path
) -> None:
    config = folder_config(cpu_config, batch_per_device=9, image_size=16)
    feed = open_feed(part_of(config, listing=listing))
    epochs = [batch[0] for batch in itertools.islice(feed.batches, 3)]
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[1], epochs[2])


def test_ranks_see_different_images_and_equally_many(
    cpu_config: Make, part_of: PartOf, listing: Path
) -> None:
    """C20: nine images, two ranks, batch 2: two steps an epoch on both, one image left out."""
    config = folder_config(cpu_config, mode="ddp", num_devices=2, batch_per_device=2, image_size=16)
    seen = [
        [
            (*image.flatten()[:3].tolist(), int(label))
            for images, labels in itertools.islice(
                open_feed(part_of(config, rank, listing)).batches, 2
            )
            for image, label in zip(images, labels, strict=True)
        ]
        for rank in (0, 1)
    ]
    assert [len(images) for images in seen] == [4, 4]
    assert not set(seen[0]) & set(seen[1])
