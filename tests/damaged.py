"""A rank of collectives whose device damages data, for tests."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch.distributed as dist
from torch import Tensor

from mgpubench.collectives.rank import measure_rank
from mgpubench.config.comm_plan import CommConfig

BAD_RANK, BAD_CALL, BAD_ELEMENT = 1, 4, 5


def measure_damaged(config: CommConfig, rank: int, folder: Path) -> None:
    """As `measure_rank`, with a hook that damages one element of one all-reduce on one rank."""
    exact, calls = dist.all_reduce, itertools.count(1)

    def damaging(tensor: Tensor) -> None:
        exact(tensor)
        if (rank, next(calls)) == (BAD_RANK, BAD_CALL):
            tensor[BAD_ELEMENT] += 1

    dist.all_reduce = damaging  # this process ends with the run
    measure_rank(config, rank, folder)
