"""One device, the plain module: the base that every speed-up is measured from."""

from __future__ import annotations

from mgpubench.config.run_config import RunConfig
from mgpubench.results.schema import RankRecord
from mgpubench.training.data.loader import open_feed
from mgpubench.training.devices import Seat
from mgpubench.training.loop import measure, no_barrier
from mgpubench.training.trainable import build_model


def run(config: RunConfig, seat: Seat) -> RankRecord:
    """Train in one process on one device."""
    share = seat.share
    feed = open_feed(config, share, seat.listing)
    model = build_model(config).to(share.device)
    return measure(config, seat, feed, model, no_barrier)
