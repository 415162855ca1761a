"""The batches of one process: synthetic on the device, synthetic in host memory, or a folder's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler

from mgpubench.config.types import PREFETCH_FACTOR
from mgpubench.results.rank_record import Remark
from mgpubench.training.data.batch import Batch, Feed
from mgpubench.training.data.folder import FolderDataset, collate
from mgpubench.training.data.listing import load_samples
from mgpubench.training.data.synthetic import synthetic_feed
from mgpubench.training.devices import Part


def open_feed(part: Part) -> Feed:
    """The batches of one process, without end."""
    return _folder_feed(part) if part.config.uses_folder else synthetic_feed(part)


def _folder_feed(part: Part) -> Feed:
    config = part.config
    dataset = FolderDataset(
        load_samples(part.listing), config.image_size, skip_bad=config.skip_bad_images
    )
    sampler: DistributedSampler[Any] = DistributedSampler(
        dataset,
        num_replicas=config.world_size,
        rank=part.rank,
        shuffle=True,
        seed=config.seed,
        drop_last=True,  # the default pads by repetition, and would count images twice
    )
    workers = config.workers_per_rank
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=part.batch,
        sampler=sampler,
        collate_fn=collate,
        num_workers=workers,
        pin_memory=part.device.type == "cuda",
        drop_last=True,
        # Forked, as torch does by default. The start method of this process, which comes from a
        # fork server, would load torch again in each worker.
        multiprocessing_context="fork" if workers else None,
        persistent_workers=workers > 0,
        prefetch_factor=PREFETCH_FACTOR if workers else None,
    )
    remarks: set[Remark] = set()
    return Feed(_epochs(loader, sampler, remarks), remarks)


def _epochs(
    loader: DataLoader[Any], sampler: DistributedSampler[Any], remarks: set[Remark]
) -> Iterator[Batch]:
    """Epoch after epoch, each in its own order, without end.

    Raises:
        RuntimeError: if a loader worker dies. Torch may say only that a connection was lost.
    """
    try:
        for epoch in itertools.count():
            sampler.set_epoch(epoch)
            for images, labels, noticed in loader:
                remarks.update(noticed)
                yield images, labels
    except (ConnectionError, EOFError) as error:
        kind = type(error).__name__
        raise RuntimeError(f"a DataLoader worker exited unexpectedly ({kind})") from error
