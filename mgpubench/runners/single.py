"""One device and the plain module: the baseline of every speed-up."""

from __future__ import annotations

from mgpubench.training.devices import Part
from mgpubench.training.technique import Record, Work, Wrapped
from mgpubench.training.trainable import build_model


def run(part: Part, work: Work[Record]) -> Record:
    """Do some work in one process on one device."""
    model = build_model(part)
    return work(part, Wrapped(model=model, plain=model))
