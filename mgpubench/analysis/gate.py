"""`--fail-if-slower`: is something slower than allowed, and is that sure?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mgpubench.analysis.stats import Interval

Result = Literal["passed", "tripped", "undecided"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A ratio at a gate."""

    name: str
    interval: Interval | None
    result: Result


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """All ratios at a gate."""

    allowed: float
    """The share by which something may be slower, e.g. 0.05."""
    checked: list[Checked]

    @property
    def result(self) -> Result:
        """Tripped if one ratio is surely too low; passed if all are surely high enough."""
        results = {each.result for each in self.checked}
        if "tripped" in results:
            return "tripped"
        return "passed" if results == {"passed"} else "undecided"


def check_gate(intervals: Iterable[tuple[str, Interval | None]], allowed: float) -> Gate:
    """Hold the intervals of some ratios against 1 - `allowed`."""
    return Gate(
        allowed=allowed,
        checked=[
            Checked(name=name, interval=interval, result=_check(interval, 1 - allowed))
            for name, interval in intervals
        ],
    )


def _check(interval: Interval | None, least: float) -> Result:
    if interval is None:
        return "undecided"
    low, high = interval
    if high < least:
        return "tripped"
    return "passed" if low >= least else "undecided"
