"""What `run --duration` prints at its end: the speed over time, and a verdict in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.text import Text

from mgpubench.analysis.endurance import MIN_CHANGE, MIN_RUNS, Endurance, Point, judge_endurance
from mgpubench.format import (
    UNKNOWN,
    format_count,
    format_duration,
    format_percent,
    format_ratio,
)
from mgpubench.report.columns import Column, without_empty
from mgpubench.report.console import open_console
from mgpubench.report.tables import print_table
from mgpubench.results.clock_reasons import THROTTLING
from mgpubench.results.schema import RunRecord

MAX_LINES = 10

TITLE = "speed over time (each run divided by the mean of its configuration)"


def print_endurance(records: Sequence[RunRecord]) -> None:
    """Print the speed over time, and the verdict."""
    endurance, console = judge_endurance(records), open_console()
    console.print()
    console.print(Text(TITLE, style="bold"), soft_wrap=True)
    print_table(without_empty(_columns(endurance.points)), console)
    for sentence in endurance_sentences(endurance):
        console.print(Text(sentence), soft_wrap=True)


def _columns(points: Sequence[Point]) -> list[Column]:
    """At most ten lines, each for as many runs."""
    size = math.ceil(len(points) / MAX_LINES) or 1
    parts = [points[start : start + size] for start in range(0, len(points), size)]
    return [
        Column("from", [format_duration(part[0].at_s) for part in parts]),
        Column("runs", [str(len(part)) for part in parts]),
        Column("speed", [format_ratio(_speed(part)) for part in parts]),
        Column("highest\ntemperature", [_heat(part) for part in parts], is_optional=True),
    ]


def _speed(points: Sequence[Point]) -> float | None:
    """The geometric mean of the speeds."""
    known = [point.deviation for point in points if point.deviation is not None]
    return math.exp(math.fsum(known) / len(known)) if known else None


def _heat(points: Sequence[Point]) -> str:
    known = [
        point.record.gpu_temperature_max_c
        for point in points
        if point.record.gpu_temperature_max_c is not None
    ]
    return f"{max(known):.0f} C" if known else UNKNOWN


def endurance_sentences(endurance: Endurance) -> Iterator[str]:
    """The verdict, with what it is founded on."""
    count = format_count(len(endurance.points), "run")
    if endurance.state == "unknown":
        yield f"undecided: {count}, and at least {MIN_RUNS} are needed to judge"
    if endurance.state == "steady":
        yield (
            f"steady: the speed of {count} did not change by more than "
            f"{format_percent(MIN_CHANGE)}, the last one "
            f"{format_duration(endurance.points[-1].at_s)} after the first"
        )
    if endurance.failed:
        yield f"failed: {_how_many(endurance.failed, count)}"
    if endurance.throttled:
        reasons = _reasons(endurance.throttled)
        yield f"throttled: {_how_many(endurance.throttled, count)}, by {reasons}"
    if endurance.drift:
        since, change = endurance.drift.since, endurance.drift.change
        yield (
            f"drifting: {format_percent(abs(change))} {'slower' if change < 0 else 'faster'} since "
            f"{format_duration(since.at_s)} after the start (round {since.record.round})"
        )


def _how_many(points: Sequence[Point], of_all: str) -> str:
    first = points[0]
    return (
        f"{len(points)} of {of_all}, the first one in round {first.record.round}, "
        f"{format_duration(first.at_s)} after the start"
    )


def _reasons(points: Sequence[Point]) -> str:
    seen = {reason for point in points for reason in point.record.throttle_reasons.split(";")}
    return " and ".join(words for reason, words in THROTTLING.items() if reason in seen)
