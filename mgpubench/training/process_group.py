"""The process group of a run, and a barrier that does not touch the GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from mgpubench.training.devices import Part

PEER_PATIENCE = timedelta(minutes=1)


@contextmanager
def process_group(part: Part) -> Iterator[Callable[[], None]]:
    """Join the ranks of a run. Gives a barrier at which the hosts wait, and not the devices."""
    config = part.config
    # The supervisor ends a run at its time limit. A peer must not complain before that.
    patience = timedelta(seconds=config.timeout_s) + PEER_PATIENCE
    # The ranks meet in a file, so no port is opened, and no host name is looked up.
    store = dist.FileStore(str(part.store), config.world_size)  # type: ignore[attr-defined]
    store.set_timeout(patience)
    dist.init_process_group(
        config.backend,
        store=store,
        rank=part.rank,
        world_size=config.world_size,
        timeout=patience,
    )
    barrier = _host_barrier(config.backend, patience)
    yield barrier
    # Without `finally`: after an error this could wait for ranks that have ended.
    barrier()
    dist.destroy_process_group()


def _host_barrier(backend: str, patience: timedelta) -> Callable[[], None]:
    """A barrier over gloo. Over NCCL it would be an all-reduce on the GPU that is measured."""
    group: Any = None
    if backend != "gloo":
        group = dist.new_group(backend="gloo", timeout=patience)

    def barrier() -> None:
        dist.barrier(group=group)

    return barrier


def broadcast_buffers(module: nn.Module) -> None:
    """Give all ranks the buffers of rank 0, such as the running statistics of BatchNorm."""
    for buffer in module.buffers():
        dist.broadcast(buffer, src=0)


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The sum of a tensor over all ranks."""
    total = tensor.clone()
    dist.all_reduce(total)
    return total
