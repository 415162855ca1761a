"""One rank of a run, inside its worker process."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from pathlib import Path

from mgpubench.config.run_config import RunConfig
from mgpubench.launch.loss_lines import loss_file
from mgpubench.launch.step_count import STEP_COUNT_FILE, StepCounter
from mgpubench.results.rank_record import RankRecord
from mgpubench.training.devices import Part, devices_of_rank
from mgpubench.training.loop import measure
from mgpubench.training.torch_settings import set_up_process

STORE_FILE = "store"


def run_rank(config: RunConfig, rank: int, runner: str, folder: Path, listing: Path) -> RankRecord:
    """Set this process up for its part of a run, and hand the part to a runner.

    `runner` names the module of the run's mode, and `folder` is that of the job.
    """
    part = make_part(config, rank, folder, listing)
    set_up_process(part)
    record: RankRecord = importlib.import_module(runner).run(part, measure)
    # The loader workers have ended by now, so their time is included.
    return replace(record, cpu_s=sum(os.times()[:4]))


def make_part(config: RunConfig, rank: int, folder: Path, listing: Path) -> Part:
    """The part of one rank."""
    numbers, devices = devices_of_rank(config, rank)
    return Part(
        config=config,
        rank=rank,
        device_numbers=numbers,
        devices=devices,
        store=folder / STORE_FILE,
        listing=listing,
        losses=loss_file(folder, rank),
        # All ranks advance together, so one of them counts for all.
        on_step=StepCounter(folder / STEP_COUNT_FILE).advance if rank == 0 else _no_count,
    )


def _no_count() -> None:
    """Called after the steps of the other ranks."""
