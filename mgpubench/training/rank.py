"""One rank of a run, inside its worker process."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mgpubench.config.run_config import RunConfig
from mgpubench.config.train_config import TrainConfig
from mgpubench.launch.events import EVENTS_FILE, EventWriter
from mgpubench.launch.loss_lines import loss_file
from mgpubench.launch.step_count import STEP_COUNT_FILE, StepCounter
from mgpubench.results.rank_record import RankRecord
from mgpubench.training.devices import Part, devices_of_rank
from mgpubench.training.epochs import evaluate_once, train_epochs
from mgpubench.training.loop import measure
from mgpubench.training.technique import nothing
from mgpubench.training.torch_settings import set_up_process, use_deterministic_algorithms

STORE_FILE = "store"


def run_rank(config: RunConfig, rank: int, runner: str, folder: Path, listing: Path) -> RankRecord:
    """Set this process up for its part of a run, and let a runner measure it.

    `runner` names the module of the run's mode, and `folder` is that of the job.
    """
    part = make_part(config, rank, folder, listing)
    set_up_process(part)
    record: RankRecord = importlib.import_module(runner).run(part, measure)
    # The loader workers have ended by now, so their time is included.
    return replace(record, cpu_s=sum(os.times()[:4]))


def train_rank(config: TrainConfig, rank: int, runner: str, folder: Path, listing: Path) -> int:
    """Set this process up for its part of a training, and let a runner do it.

    Returns the epochs that were trained.
    """
    part = make_part(config.run, rank, folder, listing)
    if config.options.deterministic:
        use_deterministic_algorithms()
    set_up_process(part)
    events = EventWriter(folder / EVENTS_FILE)
    work = partial(train_epochs, config=config, events=events)
    done: int = importlib.import_module(runner).run(part, work)
    return done


def evaluate_rank(
    config: TrainConfig, rank: int, runner: str, folder: Path, listing: Path
) -> dict[str, Any]:
    """Set this process up, and let a runner evaluate the checkpoint of a configuration."""
    part = make_part(config.run, rank, folder, listing)
    set_up_process(part)
    work = partial(evaluate_once, config=config)
    figures: dict[str, Any] = importlib.import_module(runner).run(part, work)
    return figures


def make_part(config: RunConfig, rank: int, folder: Path, listing: Path) -> Part:
    """The part of one rank."""
    numbers, devices = devices_of_rank(config, rank)
    # All ranks advance together, so one of them counts for all.
    counter = StepCounter(folder / STEP_COUNT_FILE) if rank == 0 else None
    return Part(
        config=config,
        rank=rank,
        device_numbers=numbers,
        devices=devices,
        store=folder / STORE_FILE,
        listing=listing,
        losses=loss_file(folder, rank),
        on_step=counter.advance if counter else nothing,
        on_progress=counter.touch if counter else nothing,
    )
