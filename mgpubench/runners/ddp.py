"""DistributedDataParallel: one process per device.

In each step a process takes the batch of one device, from a loader of its own. The loss is the mean
over that batch. During backward the gradients are averaged over the ranks, bucket by bucket
(all-reduce), and then every rank makes the same optimizer step.
"""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mgpubench.runners.comm_hooks import register_hook
from mgpubench.training.devices import Part
from mgpubench.training.process_group import broadcast_buffers, process_group, sum_over_ranks
from mgpubench.training.technique import Record, Work, Wrapped
from mgpubench.training.trainable import build_model


def run(part: Part, work: Work[Record]) -> Record:
    """Do some work in one process of several, with the model on this process's device."""
    with process_group(part) as barrier:
        model = build_model(part)
        wrapped = wrap(model, part)
        return work(
            part,
            Wrapped(
                model=wrapped,
                plain=model,
                barrier=barrier,
                without_sync=wrapped.no_sync,
                share_buffers=partial(broadcast_buffers, model),
                sum_over_ranks=sum_over_ranks,
            ),
        )


def wrap(model: nn.Module, part: Part) -> DistributedDataParallel:
    """DDP over the one device of this process, with the options that the user changed."""
    device_ids = None if part.device.type == "cpu" else [part.device]  # a CPU has no id
    options = part.config.ddp
    if options.sync_batchnorm:
        nn.SyncBatchNorm.convert_sync_batchnorm(model)  # in place: a TrainableModel is no BatchNorm
    wrapped = DistributedDataParallel(model, device_ids=device_ids, **options.arguments)  # type: ignore[arg-type]
    register_hook(wrapped, options.comm_hook)
    return wrapped
