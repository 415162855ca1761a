"""DistributedDataParallel: one process a device.

Its share of a step is one device's batch, from a loader of its own. The loss is the mean over that
batch; during backward the gradients are averaged over the ranks, bucket by bucket (all-reduce), and
every rank makes the same optimizer step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mgpubench.config.run_config import RunConfig
from mgpubench.results.schema import RankRecord
from mgpubench.training.data.loader import open_feed
from mgpubench.training.devices import Seat, Share
from mgpubench.training.loop import measure
from mgpubench.training.trainable import build_model

PEER_PATIENCE = timedelta(minutes=1)


def run(config: RunConfig, seat: Seat) -> RankRecord:
    """Train in one process of several, with the model on this process's device."""
    share = seat.share
    with process_group(config, seat) as barrier:
        feed = open_feed(config, share, seat.listing)
        model = build_model(config).to(share.device)
        return measure(config, seat, feed, wrap(model, share, config.ddp_arguments), barrier)


def wrap(model: nn.Module, share: Share, arguments: Mapping[str, Any]) -> nn.Module:
    """DDP over the one device of this process; a CPU is no device."""
    device_ids = None if share.device.type == "cpu" else [share.device]
    return DistributedDataParallel(model, device_ids=device_ids, **arguments)


@contextmanager
def process_group(config: RunConfig, seat: Seat) -> Iterator[Callable[[], None]]:
    """Join the ranks of this run; gives a barrier at which the hosts wait, and not the devices."""
    # The supervisor ends the run at its time; a peer must not complain before that.
    patience = timedelta(seconds=config.timeout_s) + PEER_PATIENCE
    # The ranks meet in a file: no port is opened, and no host name is looked up.
    store = dist.FileStore(str(seat.store), config.world_size)  # type: ignore[attr-defined]
    store.set_timeout(patience)
    dist.init_process_group(
        config.backend,
        store=store,
        rank=seat.share.rank,
        world_size=config.world_size,
        timeout=patience,
    )
    barrier = _host_barrier(config, patience)
    yield barrier
    # No `finally`: after an error this could wait for ranks that are no more.
    barrier()
    dist.destroy_process_group()


def _host_barrier(config: RunConfig, patience: timedelta) -> Callable[[], None]:
    """A barrier over gloo: over NCCL it would be an all-reduce on the GPU that is measured."""
    group: Any = None
    if config.backend != "gloo":
        group = dist.new_group(backend="gloo", timeout=patience)

    def barrier() -> None:
        dist.barrier(group=group)

    return barrier
