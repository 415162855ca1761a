"""DataParallel: one process drives all devices.

Every step the first device takes the global batch, cuts it up (scatter), copies the model to the
others (replicate), runs the replicas in threads (parallel apply), and collects their outputs
(gather); the loss, the sum of the gradients and the optimizer are its work alone.
"""

from __future__ import annotations

from torch import nn

from mgpubench.config import RunConfig
from mgpubench.data import open_feed
from mgpubench.models import build_model
from mgpubench.records import RankRecord
from mgpubench.runners.cpu_replicas import CpuReplicas
from mgpubench.share import Seat
from mgpubench.train import measure, no_barrier


def run(config: RunConfig, seat: Seat) -> RankRecord:
    """Train in one process, with a replica of the model on each device."""
    share = seat.share
    feed = open_feed(config, share, seat.listing)
    model = build_model(config.model, feed.num_classes, config.precision).to(share.device)
    return measure(config, seat, feed, wrap(model, config), no_barrier)


def wrap(model: nn.Module, config: RunConfig) -> nn.Module:
    """Torch's DataParallel on CUDA; on a CPU, where it ignores its devices, our own replicas."""
    if config.device_type == "cuda":
        return nn.DataParallel(model, device_ids=list(config.device_indices))
    if config.num_devices == 1:
        return nn.DataParallel(model)
    return CpuReplicas(model, config.num_devices, config.threads_per_rank)
