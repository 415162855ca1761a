"""Batches for one process: synthetic on the device, synthetic in host memory, or a folder's images.

Images are uint8 of shape (batch, 3, size, size) and labels int64 of shape (batch,), in every kind.
"""

from __future__ import annotations

import importlib
import itertools
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate

from mgpubench.config.run_config import PREFETCH_FACTOR, SYNTHETIC, RunConfig
from mgpubench.errors import TorchUnavailable
from mgpubench.results.schema import Remark
from mgpubench.training.data.listing import load_samples
from mgpubench.training.devices import Share

Batch = tuple[Tensor, Tensor]
Sample = tuple[Tensor, int, tuple[Remark, ...]]

SYNTHETIC_BATCHES = 4
"""Different batches that are cycled, so that the model cannot learn one by heart."""


@dataclass(frozen=True, slots=True)
class Feed:
    """An endless supply of batches."""

    batches: Iterator[Batch]
    remarks: set[Remark]
    """What was met in the images so far."""


def open_feed(config: RunConfig, share: Share, listing: Path) -> Feed:
    """The feed of one process. `listing` is read only for a folder of images."""
    if config.uses_folder:
        return _folder_feed(config, share, listing)
    return _synthetic_feed(config, share)


def _synthetic_feed(config: RunConfig, share: Share) -> Feed:
    batches = [_synthetic_batch(config, share, index) for index in range(SYNTHETIC_BATCHES)]
    return Feed(itertools.cycle(batches), set())


def _synthetic_batch(config: RunConfig, share: Share, index: int) -> Batch:
    """Random images and labels, made device by device: dp and ddp share one global batch."""
    shards = [_shard(config, device, index) for device in share.device_numbers]
    images, labels = (torch.cat(parts) for parts in zip(*shards, strict=True))
    if config.data == SYNTHETIC:
        return images.to(share.device), labels.to(share.device)
    if share.device.type == "cuda":
        return images.pin_memory(), labels.pin_memory()
    return images, labels


def _shard(config: RunConfig, device_number: int, index: int) -> Batch:
    seed = random.Random(f"{config.seed}/{device_number}/{index}").getrandbits(63)
    generator = torch.Generator().manual_seed(seed)
    shape = (config.batch_per_device, 3, config.image_size, config.image_size)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, config.num_classes, shape[:1], generator=generator)
    return images, labels


def _folder_feed(config: RunConfig, share: Share, listing: Path) -> Feed:
    dataset = FolderDataset(
        load_samples(listing), config.image_size, skip_bad=config.skip_bad_images
    )
    sampler: DistributedSampler[Any] = DistributedSampler(
        dataset,
        num_replicas=config.world_size,
        rank=share.rank,
        shuffle=True,
        seed=config.seed,
        drop_last=True,  # the default pads by repetition, and would count images twice
    )
    workers = config.workers_per_rank
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=share.batch,
        sampler=sampler,
        collate_fn=_collate,
        num_workers=workers,
        pin_memory=share.device.type == "cuda",
        drop_last=True,
        # Forked as torch does by default; these processes come of a fork server, whose own way of
        # starting children would load torch anew in each.
        multiprocessing_context="fork" if workers else None,
        persistent_workers=workers > 0,
        prefetch_factor=PREFETCH_FACTOR if workers else None,
    )
    remarks: set[Remark] = set()
    return Feed(_epochs(loader, sampler, remarks), remarks)


def _collate(samples: Sequence[Sample]) -> tuple[Tensor, Tensor, tuple[Remark, ...]]:
    # In memory height by width by channel, as decoders leave images: putting the channels first
    # would cost a worker 8 % of its time, and costs a GPU next to nothing.
    images, labels = default_collate(
        [(image.permute(1, 2, 0), label) for image, label, _ in samples]
    )
    remarks = tuple(remark for sample in samples for remark in sample[2])
    return images.permute(0, 3, 1, 2), labels, remarks


def _epochs(
    loader: DataLoader[Any], sampler: DistributedSampler[Any], remarks: set[Remark]
) -> Iterator[Batch]:
    """Epoch after epoch, each in its own order, without end.

    Raises:
        RuntimeError: if a loader worker dies; torch itself may only say that a connection is lost.
    """
    try:
        for epoch in itertools.count():
            sampler.set_epoch(epoch)
            for images, labels, met in loader:
                remarks.update(met)
                yield images, labels
    except (ConnectionError, EOFError) as error:
        kind = type(error).__name__
        raise RuntimeError(f"a DataLoader worker exited unexpectedly ({kind})") from error


class FolderDataset(Dataset[Sample]):
    """Images of a folder: shorter side to size x 256 / 224, then a centre crop of size x size.

    With `skip_bad`, the next image that can be read stands in for one that cannot.
    """

    def __init__(
        self, samples: Sequence[tuple[str, int]], image_size: int, *, skip_bad: bool = False
    ) -> None:
        # Three objects and not a list of tuples: reading a list counts references, by which each
        # forked loader worker would come to own a copy of it (150 MB for ImageNet) in the window.
        paths = [os.fsencode(path) for path, _ in samples]
        self._paths = b"".join(paths)
        self._ends = torch.tensor([0, *map(len, paths)]).cumsum(0)
        self._labels = torch.tensor([label for _, label in samples])
        self._image_size = image_size
        self._skip_bad = skip_bad

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Sample:
        """A uint8 image of shape (3, size, size), its class number, and what was met on the way.

        Raises:
            UnreadableImage: if the file, or with `skip_bad` every file, cannot be read as an image.
        """
        # Here and not above: synthetic data need no torchvision.
        from mgpubench.training.data.decode import UnreadableImage

        bad: list[Remark] = []
        for place in range(index, index + len(self)):
            number = place % len(self)
            try:
                image, remarks = self._read(number)
            except UnreadableImage:
                if not self._skip_bad:
                    raise
                bad.append(Remark("bad", self._path(number)))
            else:
                return image, int(self._labels[number]), (*bad, *remarks)
        raise UnreadableImage(f"none of the {len(self)} images of the folder can be read")

    def _path(self, index: int) -> str:
        return os.fsdecode(self._paths[int(self._ends[index]) : int(self._ends[index + 1])])

    def _read(self, index: int) -> tuple[Tensor, tuple[Remark, ...]]:
        from mgpubench.training.data.decode import check_shape, decode_rgb, is_huge, resize_and_crop

        path = self._path(index)
        image = decode_rgb(path)
        check_shape(path, image, self._image_size)
        remarks = (Remark("huge", path),) if is_huge(image) else ()
        return resize_and_crop(image, self._image_size), remarks


def check_decoder() -> None:
    """Find out before the first run whether images can be decoded at all.

    Raises:
        TorchUnavailable: if torchvision or Pillow cannot be imported.
    """
    try:
        importlib.import_module("mgpubench.training.data.decode")
    # RuntimeError too: of a torchvision that was built for another torch.
    except Exception as error:
        raise TorchUnavailable(
            f"a folder of images needs torchvision and Pillow: {error}",
            "Install the torchvision of your torch, or use --data synthetic.",
        ) from error
