"""The batches of one process: synthetic on the device, synthetic in host memory, or a folder's."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from mgpubench.config.types import PREFETCH_FACTOR
from mgpubench.format import signal_name
from mgpubench.results.rank_record import Remark
from mgpubench.training.data.batch import Batch, Feed
from mgpubench.training.data.folder import Augment, FolderDataset, collate
from mgpubench.training.data.listing import load_samples
from mgpubench.training.data.order import Cut, ImageOrder
from mgpubench.training.data.synthetic import synthetic_feed
from mgpubench.training.devices import Part

PATIENCE_S = 1.0
"""The connection to a worker may be lost before its end is known."""


def open_feed(part: Part) -> Feed:
    """The micro-batches of one process, without end."""
    return folder_feed(part) if part.config.uses_folder else synthetic_feed(part)


def folder_feed(
    part: Part, *, epochs: Iterable[int] | None = None, augment: Augment | None = None
) -> Feed:
    """The micro-batches of one process from its folder of images; all epochs if none are named."""
    config = part.config
    dataset = FolderDataset(
        load_samples(part.listing),
        config.image_size,
        skip_bad=config.skip_bad_images,
        augment=augment,
    )
    cut = Cut(
        num_images=len(dataset),
        num_devices=config.num_devices,
        accumulate=config.accumulate,
        micro_batch_per_device=config.micro_batch_per_device,
        device_numbers=part.device_numbers,
    )
    workers = config.workers_per_rank
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_sampler=ImageOrder(cut, config.seed, epochs),
        collate_fn=collate,
        num_workers=workers,
        pin_memory=part.device.type == "cuda",
        # Forked, as torch does by default. The start method of this process, which comes from a
        # fork server, would load torch again in each worker.
        multiprocessing_context="fork" if workers else None,
        prefetch_factor=PREFETCH_FACTOR if workers else None,
    )
    remarks: set[Remark] = set()
    return Feed(_batches(loader, remarks), remarks)


def _batches(loader: DataLoader[Any], remarks: set[Remark]) -> Iterator[Batch]:
    """What the loader gives, with the remarks put aside.

    Raises:
        RuntimeError: if a loader worker dies. Torch may say only that a connection was lost.
    """
    iterator = iter(loader)
    try:
        for images, labels, noticed in iterator:
            remarks.update(noticed)
            yield images, labels
    except (ConnectionError, EOFError, RuntimeError) as error:
        lost_connection = isinstance(error, ConnectionError | EOFError)
        number = _killing_signal(iterator, PATIENCE_S if lost_connection else 0.0)
        if number is not None:
            raise RuntimeError(
                f"a DataLoader worker was killed by signal {number} ({signal_name(number)})"
            ) from error
        if not lost_connection:
            raise
        kind = type(error).__name__
        raise RuntimeError(f"a DataLoader worker exited unexpectedly ({kind})") from error


def _killing_signal(iterator: Iterator[Any], patience_s: float) -> int | None:
    """The signal that killed a worker, as far as that is known within a short time."""
    until_s = time.monotonic() + patience_s
    while True:
        # There is no public way to ask.
        codes: list[int | None] = [worker.exitcode for worker in getattr(iterator, "_workers", ())]
        if killed := [-code for code in codes if code is not None and code < 0]:
            return killed[0]
        if time.monotonic() >= until_s:
            return None
        time.sleep(0.01)
