"""Ranks of collectives on devices that damage data, or lack an operation; for tests."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch.distributed as dist
from torch import Tensor

from mgpubench.collectives import rank as rank_module
from mgpubench.config.comm_plan import CommConfig
from mgpubench.config.comm_request import Operation
from mgpubench.config.run_config import RunConfig
from mgpubench.launch.block_times import SizeTimes

BAD_RANK, BAD_CALL, BAD_ELEMENT = 1, 4, 5


def measure_damaged(config: CommConfig, rank: int, folder: Path) -> list[SizeTimes]:
    """As `measure_rank`, with a hook that damages one element of one all-reduce on one rank."""
    exact, calls = dist.all_reduce, itertools.count(1)

    def damaging(tensor: Tensor) -> None:
        exact(tensor)
        if (rank, next(calls)) == (BAD_RANK, BAD_CALL):
            tensor[BAD_ELEMENT] += 1

    dist.all_reduce = damaging  # this process ends with the run
    return rank_module.measure_rank(config, rank, folder)


def find_lacking(
    run: RunConfig, rank: int, folder: Path, operations: tuple[Operation, ...]
) -> dict[Operation, str]:
    """As if the backend had no gather: this torch's gloo has all operations."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise RuntimeError("ProcessGroupGloo does not support gather\nat some line")

    dist.gather = refuse
    return rank_module.find_lacking(run, rank, folder, operations)
