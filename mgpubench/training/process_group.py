"""The process group of a run, and a barrier that does not touch the GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from mgpubench.launch.environment import GROUP_VARIABLE
from mgpubench.training.devices import Part

PEER_PATIENCE = timedelta(minutes=1)


@contextmanager
def process_group(part: Part) -> Iterator[Callable[[], None]]:
    """Join the ranks of a run. Gives a barrier at which the hosts wait, and not the devices."""
    config = part.config
    # The supervisor ends a run at its time limit. A peer must not complain before that.
    patience = timedelta(seconds=config.timeout_s) + PEER_PATIENCE
    store = _store(part, patience)
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


def _store(part: Part, patience: timedelta) -> Any:
    """Where the ranks meet: in a file, or in the store of node 0 if they are on several machines.

    With a file no port is opened, and no host name is looked up.
    """
    if GROUP_VARIABLE not in os.environ:
        return dist.FileStore(str(part.store), part.config.world_size)  # type: ignore[attr-defined]
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(  # type: ignore[attr-defined]
        address, port, None, False, patience, wait_for_workers=False
    )
    return dist.PrefixStore(os.environ[GROUP_VARIABLE], store)  # type: ignore[attr-defined]


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
