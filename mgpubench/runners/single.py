"""One device and the plain module: the baseline of every speed-up."""

from __future__ import annotations

from mgpubench.results.rank_record import RankRecord
from mgpubench.training.devices import Part
from mgpubench.training.loop import measure
from mgpubench.training.process_group import no_barrier
from mgpubench.training.trainable import build_model


def run(part: Part) -> RankRecord:
    """Train in one process on one device."""
    return measure(part, build_model(part), no_barrier)
