"""Faults as data: what is done to a run, and what the user should see of it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mgpubench.launch.step_count import STEP_COUNT_FILE, read_step_count
from mgpubench.launch.supervisor import Supervisor
from tests.processes import Process, descendants, wait_until

TINY = (
    *("run", "--device", "cpu", "--model", "tiny-cnn", "--image-size", 64, "-b", 4, "--gpus", 2),
    *("--warmup-steps", 1, "--steps", 4, "--rounds", 1, "--out", "out"),
)
ENDLESS = ("--steps", 1_000_000)
IMAGES = ("--data", "{photos}", "--workers-per-gpu", 1)
ALL = ("single", "dp", "ddp")


@dataclass(frozen=True)
class Scene:
    """What a fault finds."""

    ranks: list[Process]
    photos: Path
    out: Path

    def loader_workers(self) -> list[Process]:
        return [child for rank in self.ranks for child in descendants(rank.pid)]


Hurt = Callable[[Scene], None]


@dataclass(frozen=True)
class Fault:
    """A fault, in some modes."""

    name: str
    says: str
    """A pattern of the error line, or of a warning if the run succeeds."""
    modes: tuple[str, ...] = ALL
    options: tuple[object, ...] = ()
    prepare: Callable[[Path], None] | None = None
    """What is done to the folder of images beforehand."""
    hurt: Hurt | None = None
    """What is done to it from outside once it trains. None: the fault is in its model or images."""
    exit_code: int = 1
    statuses: tuple[str, ...] = ("failed",)
    """The status of each of its rows."""
    kept: str = "finished runs; a row says why this one failed"


def each_mode(faults: Iterable[Fault]) -> list[Any]:
    """The parameters of a test that takes a fault and a mode."""
    return [
        pytest.param(fault, mode, id=f"{fault.name}-{mode}")
        for fault in faults
        for mode in fault.modes
    ]


@dataclass
class Times:
    """When things happened, on the monotonic clock."""

    hurt_s: float | None = None
    error: BaseException | None = None
    seen: set[int] = field(default_factory=set)


def hurt_when_training(
    hurt: Hurt, supervisor: Supervisor, scene_of: Callable[[list[Process]], Scene]
) -> Times:
    """Start a thread that waits for the third step, and then hurts the run."""
    times = Times()

    def work() -> None:
        try:
            wait_until(lambda: steps_done(supervisor) >= 3, 60, "three steps")
            ranks = sorted(
                (p for p in descendants(os.getpid()) if p.is_worker and p.session == p.pid),
                key=lambda process: process.age,
            )
            scene = scene_of(ranks)
            times.seen = {p.pid for p in [*ranks, *scene.loader_workers()]}
            times.hurt_s = time.monotonic()
            hurt(scene)
        except BaseException as error:
            times.error = error

    threading.Thread(target=work, daemon=True).start()
    return times


def steps_done(supervisor: Supervisor) -> int:
    files = supervisor.scratch.glob(f"job-*/{STEP_COUNT_FILE}")
    return max((read_step_count(file).steps for file in files), default=0)
