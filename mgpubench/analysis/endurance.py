"""Did the speed stay the same for hours? From the runs of a session to a verdict in words.

Each run is compared with the mean of its own configuration, so that all of them are one series over
time. A drift is a change of its mean at some moment: of all moments the one at which Student's t is
largest. All moments are tested at once (Bonferroni), at 1 %. A slow drift shows as a change too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from mgpubench.analysis import stats
from mgpubench.analysis.pools import throughput_of
from mgpubench.results.clock_reasons import THROTTLING
from mgpubench.results.schema import RunRecord

State = Literal["steady", "drifting", "throttled", "failed", "unknown"]

ERROR_RATE = 0.01
MIN_CHANGE = 0.02
"""A smaller change is no drift, however sure it is."""
MIN_RUNS = 10
MIN_SIDE = 3
"""Runs before a change, and after it, at least."""

POWER_LIMIT = "power-limit"
"""Many GPUs reach it in every training. It alone is no throttling of an endurance run."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run in the series."""

    at_s: float
    """Since the start of the first run, by the time of day."""
    record: RunRecord
    deviation: float | None
    """Logarithm of its throughput, without the mean of its configuration; None if it failed."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A change of speed."""

    since: Point
    """The first run after it."""
    change: float
    """Relative: -0.1 is 10 % slower."""


@dataclass(frozen=True, slots=True)
class Endurance:
    """How a session went."""

    points: Sequence[Point]
    drift: Drift | None
    throttled: Sequence[Point]
    """Runs that heat or a power brake slowed down."""
    failed: Sequence[Point]

    @property
    def state(self) -> State:
        """The worst that happened."""
        if self.failed:
            return "failed"
        if self.throttled:
            return "throttled"
        if self.drift:
            return "drifting"
        measured = sum(point.deviation is not None for point in self.points)
        return "steady" if measured >= MIN_RUNS else "unknown"


def judge_endurance(records: Sequence[RunRecord]) -> Endurance:
    """How the runs of a session went, one after the other."""
    points = _series(records)
    measured = [point for point in points if point.deviation is not None]
    return Endurance(
        points,
        drift=find_drift(measured),
        throttled=[point for point in measured if _was_throttled(point.record)],
        failed=[point for point in points if point.record.status == "failed"],
    )


def _series(records: Sequence[RunRecord]) -> list[Point]:
    # Not by their dates: the clock may have been set meanwhile.
    ordered = sorted(records, key=lambda record: (record.sitting or 1, record.position or 0))
    members: defaultdict[tuple[object, ...], list[float]] = defaultdict(list)
    for record in ordered:
        if record.is_ok:
            members[_configuration(record)].append(throughput_of(record))
    means = {key: stats.log_mean(values) for key, values in members.items()}
    return [
        Point(
            at_s=_moment(record) - _moment(ordered[0]),
            record=record,
            deviation=math.log(throughput_of(record)) - means[_configuration(record)]
            if record.is_ok
            else None,
        )
        for record in ordered
    ]


def _configuration(record: RunRecord) -> tuple[object, ...]:
    return record.variant, record.mode, record.num_devices, record.num_nodes, record.options


def _moment(record: RunRecord) -> float:
    return datetime.fromisoformat(record.started_at).timestamp() if record.started_at else 0.0


def _was_throttled(record: RunRecord) -> bool:
    reasons = set(record.throttle_reasons.split(";")) & THROTTLING.keys()
    return bool(reasons - {POWER_LIMIT})


def find_drift(points: Sequence[Point]) -> Drift | None:
    """The moment at which the speed changed most, if it did so not by chance and by over 2 %."""
    values = [point.deviation or 0.0 for point in points]
    if len(values) < MIN_RUNS:
        return None
    places = range(MIN_SIDE, len(values) - MIN_SIDE + 1)
    sums = _running_sums(values)
    best = max(places, key=lambda place: abs(_statistic(sums, place)))
    limit = stats.student_t_quantile(1 - ERROR_RATE / len(places) / 2, len(values) - 2)
    change = math.expm1(_difference(sums, best))
    if abs(_statistic(sums, best)) <= limit or abs(change) <= MIN_CHANGE:
        return None
    return Drift(points[best], change)


Sums = list[tuple[float, float]]
"""The sum of the values, and of their squares, before each place."""


def _running_sums(values: Sequence[float]) -> Sums:
    sums = [(0.0, 0.0)]
    for value in values:
        sums.append((sums[-1][0] + value, sums[-1][1] + value**2))
    return sums


def _difference(sums: Sums, place: int) -> float:
    """The mean from a place on, minus the mean before it."""
    total, count = sums[-1][0], len(sums) - 1
    return (total - sums[place][0]) / (count - place) - sums[place][0] / place


def _statistic(sums: Sums, place: int) -> float:
    """Student's t of that difference, with one variance for both sides."""
    (total, squares), count = sums[-1], len(sums) - 1
    before, after = sums[place][0], total - sums[place][0]
    within = squares - before**2 / place - after**2 / (count - place)
    error = math.sqrt(max(within, 0.0) / (count - 2) * (1 / place + 1 / (count - place)))
    difference = _difference(sums, place)
    return difference / error if error else math.copysign(math.inf, difference)
