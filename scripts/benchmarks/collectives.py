"""What `mgpubench comm` measures, against a bare loop of the same collective."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from sides import compare_pairs, interval_of, report

from mgpubench.analysis.metrics import call_times_s, quantile
from mgpubench.collectives.measure import Bench
from mgpubench.config.comm_plan import TIMED_BLOCKS, CommConfig, make_comm_plan
from mgpubench.config.comm_request import ELEMENT_BYTES, CommOptions, CommRequest
from mgpubench.config.request import Request
from mgpubench.format import format_binary
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Job, open_supervisor
from mgpubench.machine import host
from mgpubench.session.workers import COLLECTIVES
from mgpubench.training.process_group import process_group
from mgpubench.training.rank import make_part
from mgpubench.training.torch_settings import set_up_process

PAIRS = 60
SIZES = (4 * 2**10, 256 * 2**10, 4 * 2**20)

Sides = list[tuple[list[float], list[float]]]
"""For each pair the seconds of our blocks, and of those of the bare loop, on one rank."""


def comm() -> bool:
    """An all-reduce on 2 gloo ranks, for three sizes."""
    options = CommOptions(operations=("all-reduce",))
    request = CommRequest(work=Request(device="cpu", gpus=(2,), rounds=1), options=options)
    config = make_comm_plan(request, host.assumed_machine(0)).runs[0]
    with StopSignal().installed() as stop, open_supervisor(stop, COLLECTIVES) as parent:
        reached = []
        for size in SIZES:
            folder = parent.make_folder()
            job = Job(
                target="collectives:measure_sides",
                calls=[(config, size, rank, folder) for rank in range(2)],
                folder=folder,
                label="collectives",
                watch=lambda elapsed_s: None,
                hide_gpus=True,
            )
            reached.append(judge(config, size, parent.run(job)))
    return all(reached)


def judge(config: CommConfig, size: int, of_ranks: list[Sides]) -> bool:
    """The ratio of the times; the slowest rank counts on both sides."""
    calls = config.block_calls(size)
    pairs = []
    for of_pair in zip(*of_ranks, strict=True):
        ours, theirs = zip(*of_pair, strict=True)
        pairs.append(
            (
                quantile(call_times_s(ours, calls), 0.5),
                quantile(call_times_s(theirs, calls), 0.5),
            )
        )
    result = compare_pairs(pairs)
    median_us = statistics.median(ours for ours, _ in pairs) * 1e6
    figure = f"{result.ratio:.3f} x the time, {median_us:.0f} us ({interval_of(result)})"
    low, high = result.interval or (0.0, float("inf"))
    reached = low <= 1.02 and high >= 0.98
    what = f"all-reduce of {format_binary(size)} against a bare loop"
    return report(what, figure, "0.98 to 1.02 inside the interval", reached)


def measure_sides(config: CommConfig, size: int, rank: int, folder: Path) -> Sides:
    """Both sides in turn, on one rank. Called in a worker."""
    part = make_part(config.run, rank, folder, Path("none"))
    set_up_process(part)
    order = random.Random(size)  # the same on all ranks
    with process_group(part) as barrier:
        bench = Bench(config, part, barrier)
        bare = BareLoop(config, size, barrier)
        bench.measure(size)
        bare.measure()
        sides: Sides = []
        for _ in range(PAIRS):
            if order.random() < 0.5:
                ours = bench.measure(size)
                sides.append((ours, bare.measure()))
            else:
                theirs = bare.measure()
                sides.append((bench.measure(size), theirs))
    return sides


class BareLoop:
    """As many calls on as many buffers, and nothing around them.

    On one buffer alone it would measure the cache: DDP's buckets do not lie in it either.
    """

    def __init__(self, config: CommConfig, size: int, barrier: Callable[[], None]) -> None:
        calls = config.block_calls(size)
        self._buffers = [torch.zeros(size // ELEMENT_BYTES) for _ in range(calls)]
        self._warmup_calls = config.warmup_calls
        self._barrier = barrier

    def measure(self) -> list[float]:
        """Seconds of each block."""
        for buffer in itertools.islice(itertools.cycle(self._buffers), self._warmup_calls):
            dist.all_reduce(buffer)
        return [self._time() for _ in range(TIMED_BLOCKS)]

    def _time(self) -> float:
        self._barrier()
        began_s = time.perf_counter()
        for buffer in self._buffers:
            dist.all_reduce(buffer)
        return time.perf_counter() - began_s
