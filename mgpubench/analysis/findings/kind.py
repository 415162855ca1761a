"""What a finding is: a measured fact about a figure, with advice that knows the options in use.

A finding stands beside a figure, and never suppresses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mgpubench.config.run_config import RunConfig
from mgpubench.results.rank_record import RankRecord
from mgpubench.results.schema import Figures


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about one run."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """All that a finding about one run can look at."""

    config: RunConfig
    ranks: Sequence[RankRecord]
    figures: Figures


def no_check(run: MeasuredRun) -> Iterator[str]:
    """The check of a kind that is not about single runs."""
    yield from ()


@dataclass(frozen=True, kw_only=True, slots=True)
class FindingKind:
    """A kind of finding: its code, its check, and its explanation."""

    code: str
    meaning: str
    """What the finding says about the figure, in one or two sentences."""
    remedy: str
    """What to do about it."""
    check: Callable[[MeasuredRun], Iterator[str]] = no_check
    """Yields a message for each finding about a run."""
    table_note: str = ""
    """If not empty, all rows of a table have it alike. The table says this instead of the code."""
    row_warning: str = ""
    """What a table says about a row if more than half of its runs have the finding."""
