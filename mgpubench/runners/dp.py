"""DataParallel: one process drives all devices.

In each step the process takes the whole global batch, from one loader. The first device cuts it up
(scatter), copies the model to the other devices (replicate), and gathers the outputs of the
replicas, which run in threads. The loss is the mean over the global batch. The gradients of all
replicas are summed on the first device, and the optimizer runs only there.
"""

from __future__ import annotations

from torch import nn

from mgpubench.runners.cpu_replicas import wrap_on_cpu
from mgpubench.training.devices import Part
from mgpubench.training.technique import Record, Work, Wrapped
from mgpubench.training.trainable import build_model


def run(part: Part, work: Work[Record]) -> Record:
    """Do some work in one process, with a replica of the model on each device."""
    model = build_model(part)
    return work(part, Wrapped(model=wrap(model, part), plain=model))


def wrap(model: nn.Module, part: Part) -> nn.Module:
    """DataParallel over all devices of this process; on a CPU, where torch ignores them, ours."""
    if part.device.type == "cpu":
        return wrap_on_cpu(model, len(part.devices))
    return nn.DataParallel(model, device_ids=list(part.devices))
