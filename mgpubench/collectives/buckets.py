"""The buckets in which DistributedDataParallel exchanges the gradients of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor

from mgpubench.config.run_config import RunConfig
from mgpubench.training.preflight import make_on_meta

DEFAULT_CAP_BYTES = 25 * 2**20
"""Torch's own `bucket_cap_mb`."""


def bucket_sizes(run: RunConfig) -> list[int]:
    """Bytes of each bucket of a run's model, in the order in which DDP exchanges them.

    Raises:
        RequestRefused: if there is no such model.
    """
    model = make_on_meta(run)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return sizes_of(trained, run.ddp.bucket_cap_mb)


def sizes_of(parameters: Sequence[Tensor], cap_mb: float | None = None) -> list[int]:
    """Bytes of each bucket for the trained parameters of a model, in the order of the model.

    Torch's own function cuts them, with the limits that DDP has from its second step on. By then it
    has sorted them by the arrival of their gradients, which is nearly the order of the model from
    its end. A bucket is full once it has reached its limit, so it may be larger. The limit of the
    first one is 1 MiB, unless a limit is given.
    """
    arriving = list(reversed(parameters))
    torch_dist: Any = dist  # neither name is in its stubs
    limits = [torch_dist._DEFAULT_FIRST_BUCKET_BYTES, DEFAULT_CAP_BYTES]
    if cap_mb is not None:
        limits = [int(cap_mb * 2**20)]
    buckets, _ = torch_dist._compute_bucket_assignment_by_size(arriving, limits)
    return [
        sum(arriving[index].numel() * arriving[index].element_size() for index in bucket)
        for bucket in buckets
    ]
