"""Fully sharded data parallel (FSDP2): one process per device, which keeps a part of each weight.

In each step a process takes the batch of one device, from a loader of its own. The loss is the mean
over that batch. Before a unit of the model runs, its weights are gathered from all ranks
(all-gather), and after it they are dropped. During backward they are gathered again, the gradients
are averaged, and each rank gets its part of them (reduce-scatter). Then every rank updates its part
of the weights. `sharding.units_of` says what a unit is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from mgpubench.training.devices import Part
from mgpubench.training.process_group import broadcast_buffers, process_group, sum_over_ranks
from mgpubench.training.sharding import part_of, units_of, whole_of
from mgpubench.training.technique import Record, Work, Wrapped
from mgpubench.training.trainable import build_model


def run(part: Part, work: Work[Record]) -> Record:
    """Do some work in one process of several, with a part of each weight on this device."""
    with process_group(part) as barrier:
        model = build_model(part)
        wrapped = wrap(model, part)
        return work(
            part,
            Wrapped(
                model=wrapped,
                plain=model,
                barrier=barrier,
                without_sync=partial(without_sync, wrapped),
                share_buffers=partial(broadcast_buffers, model),
                sum_over_ranks=sum_over_ranks,
                is_sharded=True,
                whole_of=whole_of,
                part_of=part_of,
            ),
        )


def wrap(model: nn.Module, part: Part) -> nn.Module:
    """The model itself, with its weights shared out: each unit, and what is in no unit."""
    mesh = init_device_mesh(part.device.type, (dist.get_world_size(),))
    for unit in units_of(model):
        fully_shard(unit, mesh=mesh)
    # Its backward pass begins at once, so dropping its weights between would save nothing.
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return model


@contextmanager
def without_sync(model: nn.Module) -> Iterator[None]:
    """A context in which gradients stay whole in this process, and add up there."""
    assert isinstance(model, FSDPModule)
    model.set_requires_gradient_sync(False)
    yield
    model.set_requires_gradient_sync(True)
