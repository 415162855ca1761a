"""One rank of a run, inside its worker process."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from pathlib import Path

from mgpubench.config.run_config import RunConfig
from mgpubench.launch.step_count import STEP_COUNT_FILE, StepCounter
from mgpubench.results.schema import RankRecord
from mgpubench.training.devices import Seat, make_share, set_up_process

STORE_FILE = "store"


def run_rank(config: RunConfig, rank: int, folder: Path, listing: Path) -> RankRecord:
    """Take this rank's share of the run and hand it to the runner of its mode."""
    share = make_share(config, rank)
    set_up_process(config, share)
    seat = Seat(
        share=share,
        store=folder / STORE_FILE,
        listing=listing,
        # All ranks go in step, so one of them counts for all.
        on_step=StepCounter(folder / STEP_COUNT_FILE).advance if rank == 0 else _not_counted,
    )
    runner = importlib.import_module(f"mgpubench.runners.{config.mode}")
    record: RankRecord = runner.run(config, seat)
    # Its loader workers have ended by now, and count.
    return replace(record, cpu_s=sum(os.times()[:4]))


def _not_counted() -> None:
    """Steps of the other ranks."""
