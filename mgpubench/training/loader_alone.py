"""How long the loader takes for a step by itself, asked after the window if a run waited for it.

On GPUs the host runs ahead of its devices, so the time in which it waits for data is not time that
the devices wait for. They do only if the loader alone is no faster than the run.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator

import torch

from mgpubench.analysis.findings.data import DATA_WAIT_LIMIT
from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import PREFETCH_FACTOR
from mgpubench.training.data.batch import Batch
from mgpubench.training.devices import Part
from mgpubench.training.technique import Wrapped

MIN_STEPS = 8


def ask_loader(
    part: Part, wrapped: Wrapped, batches: Iterator[Batch], wait_share: float
) -> float | None:
    """Seconds that the loader of this rank takes for a step; None if no rank waited for it.

    All ranks ask at the same time, since their loaders share the cores and the disk. `wait_share`
    is the share of the window in which this host waited.
    """
    if not part.config.uses_folder or part.device.type != "cuda":
        return None
    has_waited = torch.tensor([float(wait_share > DATA_WAIT_LIMIT)], device=part.device)
    if not wrapped.sum_over_ranks(has_waited).item():
        return None
    return seconds_per_step(part.config, batches)


def seconds_per_step(config: RunConfig, batches: Iterator[Batch]) -> float:
    """The pace of a loader whose queue has been used up."""
    queue = config.workers_per_rank * PREFETCH_FACTOR
    _take(batches, queue)
    steps = max(MIN_STEPS, math.ceil(queue / config.accumulate))
    began_s = time.perf_counter()
    _take(batches, steps * config.accumulate)
    return (time.perf_counter() - began_s) / steps


def _take(batches: Iterator[Batch], count: int) -> None:
    for _ in itertools.islice(batches, count):
        pass
