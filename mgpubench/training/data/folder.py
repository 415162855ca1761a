"""The images of a folder as a dataset."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from mgpubench.errors import TorchUnavailable
from mgpubench.results.rank_record import Remark
from mgpubench.training.data.order import Place

Sample = tuple[Tensor, int, tuple[Remark, ...]]

Augment = Callable[[Tensor, int, int], Tensor]
"""From a decoded uint8 image, its epoch and its number to an image of shape (3, size, size)."""


class FolderDataset(Dataset[Sample]):
    """Images of a folder: shorter side to size x 256 / 224, then a centre crop of size x size.

    An image is asked for by its epoch and its number: `dataset[epoch, number]`. `augment` replaces
    resizing and cropping. With `skip_bad`, an image that cannot be read is replaced by the next one
    that can.
    """

    def __init__(
        self,
        samples: Sequence[tuple[str, int]],
        image_size: int,
        *,
        skip_bad: bool = False,
        augment: Augment | None = None,
    ) -> None:
        # Three objects and not a list of tuples: reading a list changes reference counts, so that
        # each forked loader worker would copy all of it (150 MB for ImageNet) during the window.
        paths = [os.fsencode(path) for path, _ in samples]
        self._paths = b"".join(paths)
        self._ends = torch.tensor([0, *map(len, paths)]).cumsum(0)
        self._labels = torch.tensor([label for _, label in samples])
        self._image_size = image_size
        self._skip_bad = skip_bad
        self._augment = augment

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, place: Place) -> Sample:
        """A uint8 image of shape (3, size, size), its class number, and remarks about images.

        Raises:
            UnreadableImage: if the file, or with `skip_bad` every file, cannot be read as an image.
        """
        # Here and not above: synthetic data needs no torchvision.
        from mgpubench.training.data.decode import UnreadableImage

        bad: list[Remark] = []
        epoch, wanted = place
        for offset in range(len(self)):
            number = (wanted + offset) % len(self)
            try:
                image, remarks = self._read(epoch, number)
            except UnreadableImage:
                if not self._skip_bad:
                    raise
                bad.append(Remark("bad", self._path(number)))
            else:
                return image, int(self._labels[number]), (*bad, *remarks)
        raise UnreadableImage(f"none of the {len(self)} images of the folder can be read")

    def _path(self, index: int) -> str:
        return os.fsdecode(self._paths[int(self._ends[index]) : int(self._ends[index + 1])])

    def _read(self, epoch: int, index: int) -> tuple[Tensor, tuple[Remark, ...]]:
        from mgpubench.training.data.decode import (
            check_shape,
            decode_rgb,
            is_huge,
            resize_and_crop,
        )

        path = self._path(index)
        image = decode_rgb(path)
        check_shape(path, image, self._image_size)
        remarks = (Remark("huge", path),) if is_huge(image) else ()
        if self._augment is not None:
            return self._augment(image, epoch, index), remarks
        return resize_and_crop(image, self._image_size), remarks


class EvaluationDataset(Dataset[tuple[Tensor, int]]):
    """Images of a folder for evaluation. An image that cannot be read has the label -1."""

    def __init__(self, samples: Sequence[tuple[str, int]], image_size: int) -> None:
        self._images = FolderDataset(samples, image_size)
        self._image_size = image_size

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        """A uint8 image of shape (3, size, size), and its class number."""
        from mgpubench.training.data.decode import UnreadableImage

        try:
            image, label, _ = self._images[0, number]
        except UnreadableImage:
            return torch.zeros(3, self._image_size, self._image_size, dtype=torch.uint8), -1
        return image.contiguous(), label


def collate(samples: Sequence[Sample]) -> tuple[Tensor, Tensor, tuple[Remark, ...]]:
    """Join samples to a batch, with all their remarks."""
    # In memory as height, width, channel, as decoders leave images. Putting the channels first
    # would cost a worker 8 % of its time, and costs a GPU next to nothing.
    images, labels = default_collate(
        [(image.permute(1, 2, 0), label) for image, label, _ in samples]
    )
    remarks = tuple(remark for sample in samples for remark in sample[2])
    return images.permute(0, 3, 1, 2), labels, remarks


def check_decoder() -> None:
    """Find out before the first run whether images can be decoded at all.

    Raises:
        TorchUnavailable: if torchvision or Pillow cannot be imported.
    """
    try:
        importlib.import_module("mgpubench.training.data.decode")
    # RuntimeError too: a torchvision that was built for another torch raises it.
    except Exception as error:
        raise TorchUnavailable(
            f"a folder of images needs torchvision and Pillow: {error}",
            "Install the torchvision that belongs to your torch, or use --data synthetic.",
        ) from error
