"""The figures of collectives over the rounds of a session: times, bandwidths, and a line through
them. One run is one observation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from mgpubench.analysis.metrics import algorithm_bandwidth, bus_factor
from mgpubench.analysis.stats import (
    ERROR_RATE,
    MIN_ROUNDS,
    Interval,
    geometric_mean,
    log_mean,
    mean,
    t_half_width,
    to_interval,
    variance,
)
from mgpubench.config.comm_request import OPERATIONS, Operation
from mgpubench.results.comm import CommRecord

MIN_SIZES = 3
"""Sizes below which a line through their times says nothing."""

Point = tuple[int, float]
"""Bytes, and seconds of a call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeRow:
    """One size of an operation on a number of devices, over the rounds."""

    operation: Operation
    num_devices: int
    size_bytes: int | None
    """None for the barrier."""
    buckets: int | None
    runs: int
    time_s: float
    """Geometric mean of the runs' medians."""
    time_ci: Interval | None
    """None below 5 runs, as all intervals here."""

    @property
    def algorithm_bandwidth(self) -> float | None:
        """Bytes per second; None for the barrier."""
        return algorithm_bandwidth(self.size_bytes, self.time_s) if self.size_bytes else None

    @property
    def bus_bandwidth(self) -> float | None:
        """Bytes per second; None for the barrier."""
        return self._on_the_bus(self.time_s) if self.size_bytes else None

    @property
    def bus_bandwidth_ci(self) -> Interval | None:
        """The interval of the time, turned into bandwidths."""
        if self.time_ci is None or not self.size_bytes:
            return None
        low_s, high_s = self.time_ci
        return self._on_the_bus(high_s), self._on_the_bus(low_s)

    def _on_the_bus(self, time_s: float) -> float:
        factor = bus_factor(self.operation, self.num_devices)
        return factor * algorithm_bandwidth(self.size_bytes or 0, time_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """The line through the times of an operation: latency + size / bandwidth."""

    operation: Operation
    num_devices: int
    runs: int
    latency_s: float
    """Mean over the runs; the line's time for no data. It may be negative if no line fits."""
    latency_ci: Interval | None
    bandwidth_bytes_per_s: float
    """Geometric mean over the runs: algorithm bandwidth of ever larger sizes."""
    bandwidth_ci: Interval | None
    misfit: float
    """Largest relative distance of a size's time from the line; 0.1 is 10 %."""


def size_rows(records: Sequence[CommRecord]) -> list[SizeRow]:
    """A row for each operation, number of devices and size, in this order."""
    ok = [record for record in records if record.is_ok]
    keys = {(record.operation, record.num_devices, record.size_bytes) for record in ok}
    return [
        _size_row([record for record in ok if _key(record) == key])
        for key in sorted(keys, key=lambda key: (_place(key[0]), key[1], key[2] or 0))
    ]


def fits(records: Sequence[CommRecord]) -> list[Fit]:
    """The line of each operation and number of devices, if its runs have enough sizes."""
    ok = [record for record in records if record.is_ok and record.size_bytes]
    keys = {(record.operation, record.num_devices) for record in ok}
    found = (
        _fit([record for record in ok if _key(record)[:2] == key])
        for key in sorted(keys, key=lambda key: (_place(key[0]), key[1]))
    )
    return [fit for fit in found if fit is not None]


def line_through(points: Sequence[Point]) -> tuple[float, float] | None:
    """Latency in seconds and seconds per byte of the line that fits the times best.

    By least squares of the relative distances, since noise is a share of the time, and small sizes
    would not count else. None for fewer than 3 sizes, or if the times do not rise with the size.
    """
    if len({size for size, _ in points}) < MIN_SIZES:
        return None
    weights = [1 / time_s**2 for _, time_s in points]
    total = math.fsum(weights)
    size = math.fsum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    time = math.fsum(w * t for w, (_, t) in zip(weights, points, strict=True)) / total
    spread = math.fsum(w * (x - size) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    common = math.fsum(
        w * (x - size) * (t - time) for w, (x, t) in zip(weights, points, strict=True)
    )
    slope = common / spread
    return (time - slope * size, slope) if slope > 0 else None


def _size_row(records: Sequence[CommRecord]) -> SizeRow:
    first = records[0]
    times_s = [cast(float, record.time_median_s) for record in records]
    return SizeRow(
        operation=cast(Operation, first.operation),
        num_devices=first.num_devices,
        size_bytes=first.size_bytes,
        buckets=first.buckets,
        runs=len(records),
        time_s=geometric_mean(times_s),
        time_ci=_interval_of_ratio(times_s),
    )


def _fit(records: Sequence[CommRecord]) -> Fit | None:
    """The mean of the lines of the runs; None unless every run has one."""
    by_run: dict[str, list[Point]] = {}
    for record in records:
        point = cast(int, record.size_bytes), cast(float, record.time_median_s)
        by_run.setdefault(record.run_id, []).append(point)
    lines = [line for points in by_run.values() if (line := line_through(points))]
    if len(lines) < len(by_run):
        return None
    latencies_s = [latency_s for latency_s, _ in lines]
    bandwidths = [1 / slope for _, slope in lines]
    latency_s, bandwidth = mean(latencies_s), geometric_mean(bandwidths)
    return Fit(
        operation=cast(Operation, records[0].operation),
        num_devices=records[0].num_devices,
        runs=len(lines),
        latency_s=latency_s,
        latency_ci=_interval_of_mean(latencies_s),
        bandwidth_bytes_per_s=bandwidth,
        bandwidth_ci=_interval_of_ratio(bandwidths),
        misfit=_misfit(size_rows(records), latency_s, bandwidth),
    )


def _misfit(rows: Sequence[SizeRow], latency_s: float, bandwidth: float) -> float:
    return max(
        abs((latency_s + (row.size_bytes or 0) / bandwidth) / row.time_s - 1) for row in rows
    )


def _interval_of_ratio(values: Sequence[float]) -> Interval | None:
    """Student's t interval of a geometric mean; None below 5 values."""
    if len(values) < MIN_ROUNDS:
        return None
    logs = [math.log(value) for value in values]
    half = t_half_width(math.sqrt(variance(logs)), len(logs), ERROR_RATE)
    return to_interval(log_mean(values), half)


def _interval_of_mean(values: Sequence[float]) -> Interval | None:
    """Student's t interval of a mean; None below 5 values."""
    if len(values) < MIN_ROUNDS:
        return None
    centre, half = mean(values), t_half_width(math.sqrt(variance(values)), len(values), ERROR_RATE)
    return centre - half, centre + half


def _key(record: CommRecord) -> tuple[str, int, int | None]:
    return record.operation, record.num_devices, record.size_bytes


def _place(operation: str) -> int:
    return OPERATIONS.index(cast(Operation, operation))
