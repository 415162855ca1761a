"""DistributedDataParallel: one process a device.

Every rank takes its own part of the global batch; during backward the gradients are averaged over
the ranks bucket by bucket (all-reduce), and every rank makes the same optimizer step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mgpubench.config import RunConfig
from mgpubench.data import open_feed
from mgpubench.models import build_model
from mgpubench.records import RankRecord
from mgpubench.share import Seat, Share
from mgpubench.train import measure


def run(config: RunConfig, seat: Seat) -> RankRecord:
    """Train in one process of several, with the model on this process's device."""
    share = seat.share
    with process_group(config, seat) as barrier:
        feed = open_feed(config, share, seat.listing)
        model = build_model(config.model, feed.num_classes, config.precision).to(share.device)
        return measure(config, seat, feed, wrap(model, share), barrier)


def wrap(model: nn.Module, share: Share) -> nn.Module:
    """DDP with torch's own defaults; on a CPU it takes no device."""
    on_cuda = share.device.type == "cuda"
    return DistributedDataParallel(model, device_ids=[share.device.index] if on_cuda else None)


@contextmanager
def process_group(config: RunConfig, seat: Seat) -> Iterator[Callable[[], None]]:
    """Join the ranks of this run; gives a barrier that waits on the host and not on a stream.

    The ranks meet in a file, so no port is opened. After an error the group is left to the end of
    the process: to destroy it could wait for ranks that are no more.
    """
    dist.init_process_group(
        config.backend,
        init_method=seat.store.as_uri(),
        rank=seat.share.rank,
        world_size=config.world_size,
        timeout=timedelta(seconds=config.timeout_s),
    )
    # A barrier over NCCL would be an all-reduce on the GPU; this one only waits on the host.
    hosts: Any = None if config.backend == "gloo" else dist.new_group(backend="gloo")

    def barrier() -> None:
        dist.barrier(group=hosts)

    yield barrier
    dist.destroy_process_group()
