"""DataParallel: one process drives all devices.

Its share of a step is the global batch, from one loader. The first device cuts the batch up
(scatter), copies the model to the others (replicate), and gathers the outputs of the replicas,
which run in threads. The loss is the mean over the global batch; the gradients of all replicas are
summed on the first device, and the optimizer runs there alone.
"""

from __future__ import annotations

from torch import nn

from mgpubench.config.run_config import RunConfig
from mgpubench.results.schema import RankRecord
from mgpubench.runners.cpu_replicas import wrap_on_cpu
from mgpubench.training.data.loader import open_feed
from mgpubench.training.devices import Seat, Share
from mgpubench.training.loop import measure, no_barrier
from mgpubench.training.trainable import build_model


def run(config: RunConfig, seat: Seat) -> RankRecord:
    """Train in one process, with a replica of the model on each device."""
    share = seat.share
    feed = open_feed(config, share, seat.listing)
    model = build_model(config).to(share.device)
    return measure(config, seat, feed, wrap(model, share), no_barrier)


def wrap(model: nn.Module, share: Share) -> nn.Module:
    """DataParallel over all devices of this process; on a CPU, where torch ignores them, ours."""
    if share.device.type == "cpu":
        return wrap_on_cpu(model, share)
    return nn.DataParallel(model, device_ids=list(share.devices))
