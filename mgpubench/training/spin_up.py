"""The beginning of the warm-up on GPUs: training for some time, whatever a step takes.

A small model is through with its warm-up steps before a GPU has raised its clocks. All modes spin
up for the same time, and not for the same number of steps. The warm-up steps follow, which are as
many in every mode.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from mgpubench.training.data.batch import Batch
from mgpubench.training.data.synthetic import SYNTHETIC_BATCHES
from mgpubench.training.devices import Part
from mgpubench.training.technique import Wrapped


def spin_up(
    part: Part,
    wrapped: Wrapped,
    step: Callable[[Iterator[Batch]], Tensor],
    batches: Iterator[Batch],
) -> float:
    """Train on a few batches again and again, on all ranks equally often; returns the seconds.

    Every mode takes as many batches from its loader, so that all meet the same images in their
    window.
    """
    config = part.config
    if not config.spin_up_s:
        return 0.0
    few = list(itertools.islice(batches, SYNTHETIC_BATCHES * config.accumulate))
    began_s = time.perf_counter()
    while True:
        again = iter(few)
        for _ in range(SYNTHETIC_BATCHES):
            step(again)
        part.synchronize()
        part.on_progress()
        elapsed_s = time.perf_counter() - began_s
        if _all_are_through(part, wrapped, is_through=elapsed_s >= config.spin_up_s):
            return elapsed_s


def _all_are_through(part: Part, wrapped: Wrapped, *, is_through: bool) -> bool:
    """The same answer on all ranks, or some would wait for steps that others do not make."""
    through = wrapped.sum_over_ranks(torch.tensor([float(is_through)], device=part.device))
    return int(through.item()) == part.config.world_size
