"""Timing one size of an operation: blocks of calls, with everything else outside of them.

A block is what nccl-tests times too: several calls one after the other, so that the moment at which
each rank begins hardly counts. Every call has buffers of its own. They are filled before the block
and checked after it, so nothing but the calls is timed, and no result goes unchecked.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from mgpubench.collectives.operations import EXCHANGES, Exchange
from mgpubench.collectives.pattern import make_pattern
from mgpubench.config.comm_plan import TIMED_BLOCKS, CommConfig
from mgpubench.config.comm_request import ELEMENT_BYTES
from mgpubench.errors import RunFailed
from mgpubench.format import format_binary
from mgpubench.training.clock import make_clock
from mgpubench.training.devices import Part
from mgpubench.training.process_group import sum_over_ranks

HINT = (
    "If it happens again, do not trust what these devices, or the links between them, have trained."
)


@dataclass(frozen=True, slots=True)
class Bench:
    """One rank that measures an operation."""

    config: CommConfig
    part: Part
    barrier: Callable[[], None]
    """Waits for the hosts of all ranks."""

    def measure(self, size_bytes: int) -> list[float]:
        """Seconds of each timed block of a size on this rank.

        Raises:
            RunFailed: if a result is wrong.
        """
        exchanges = self._exchanges(size_bytes)
        calls = itertools.count()
        self._warm_up(exchanges, calls)
        return [self._timed(exchanges, calls, size_bytes) for _ in range(TIMED_BLOCKS)]

    def spin_up(self, seconds: float) -> None:
        """Exchange data for some time, so that idle GPUs raise their clocks; on all ranks alike."""
        exchange = self._exchanges(max(self.config.sizes))[0]
        began_s = time.perf_counter()
        while not self._all_are_through(time.perf_counter() - began_s >= seconds):
            self._warm_up([exchange], itertools.count())

    def _exchanges(self, size_bytes: int) -> list[Exchange]:
        """The calls of a block, each with its own buffers."""
        run, part = self.config.run, self.part
        elements = size_bytes // ELEMENT_BYTES
        pattern = make_pattern(elements, part.rank, run.world_size, part.device)
        kind = EXCHANGES[self.config.operation]
        return [kind(pattern) for _ in range(self.config.block_calls(size_bytes))]

    def _warm_up(self, exchanges: Sequence[Exchange], calls: Iterator[int]) -> None:
        again = itertools.cycle(exchanges)
        for _ in range(self.config.warmup_calls):
            exchange = next(again)
            exchange.refill(next(calls))
            exchange.start()

    def _timed(self, exchanges: Sequence[Exchange], calls: Iterator[int], size_bytes: int) -> float:
        numbers = list(itertools.islice(calls, len(exchanges)))
        for exchange, call in zip(exchanges, numbers, strict=True):
            exchange.refill(call)
        seconds = self._time(exchanges)
        for exchange, call in zip(exchanges, numbers, strict=True):
            if fault := fault_of(exchange, call):
                raise RunFailed(
                    f"{self.config.label}, {format_binary(size_bytes)}: "
                    f"{self.config.run.name_of_rank(self.part.rank)} has a wrong result: {fault}",
                    HINT,
                )
        return seconds

    def _time(self, exchanges: Sequence[Exchange]) -> float:
        clock = make_clock(self.part.device, 1)
        self.part.synchronize()
        self.barrier()
        clock.mark()
        for exchange in exchanges:
            exchange.start()
        clock.mark()
        self.part.synchronize()
        (seconds,) = clock.intervals_s()
        return seconds

    def _all_are_through(self, is_through: bool) -> bool:
        """The same answer on all ranks, or some would wait for calls that others do not make."""
        through = sum_over_ranks(torch.tensor([float(is_through)], device=self.part.device))
        return int(through.item()) == self.config.run.world_size


def fault_of(exchange: Exchange, call: int) -> str:
    """What is wrong with the result of a call; empty if all is right, or there is no result."""
    if exchange.result is None:
        return ""
    expected = exchange.expected(call)
    if torch.equal(exchange.result, expected):
        return ""
    wrong = (exchange.result != expected).nonzero().flatten()
    first = int(wrong[0])
    found, wanted = float(exchange.result[first]), float(expected[first])
    return (
        f"{found:g} instead of {wanted:g} in element {first} of {len(expected)} "
        f"({len(wrong)} wrong in call {call + 1})"
    )
