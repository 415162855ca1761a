"""What the pictures show: each group of equal work, with its rows and the runs of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from mgpubench.analysis.groups import Group, group_records
from mgpubench.analysis.pools import Pool, pool_runs
from mgpubench.analysis.row import Row
from mgpubench.format import plain, shorten
from mgpubench.report.columns import row_label, row_place
from mgpubench.report.commands import Folders
from mgpubench.report.plots.step_times import StepTimes, read_step_times
from mgpubench.report.sections import describe
from mgpubench.results.schema import RunRecord

MAX_PANELS = 6
"""So many groups of equal work are drawn. A page with more is no longer looked at."""

LABEL_CHARACTERS = 44


@dataclass(frozen=True)
class Series:
    """A row of the table, with its runs."""

    row: Row
    pool: Pool

    @property
    def label(self) -> str:
        """The row without its number of devices: `dp (cpu-replicas)`."""
        return label_of(row_label(self.row))

    @property
    def place(self) -> str:
        """The row with its number of devices: `ddp on 2 devices`."""
        return self.label + self.devices

    @property
    def devices(self) -> str:
        """Where it ran, which is never cut off: ` on 2 devices`."""
        return row_place(self.row).removeprefix(row_label(self.row))

    @property
    def kind(self) -> tuple[str, str, str]:
        """What tells it from other rows of the same mode on as many devices."""
        return self.row.variant, self.row.options, self.row.effective_mode


@dataclass(frozen=True)
class Panel:
    """A group of equal work."""

    title: str
    group: Group
    series: tuple[Series, ...]

    @property
    def is_cpu(self) -> bool:
        """True for smoke tests."""
        return self.group.device_type == "cpu"


@dataclass(frozen=True)
class Measured:
    """A comparison: its rows, the runs from which they are, and the folder of each session."""

    rows: Sequence[Row]
    records: Sequence[RunRecord]
    folders: Folders

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        """The groups of equal work that are drawn, in the order of the tables."""
        runs = group_records(self.records)
        titles = [section.title for section in describe(self.rows, self.folders)]
        groups = [(group, list(rows)) for group, rows in groupby(self.rows, lambda row: row.group)]
        return tuple(
            Panel(title, group, _series(rows, pool_runs(runs[group])))
            for title, (group, rows) in zip(titles, groups, strict=True)
        )[:MAX_PANELS]

    @cached_property
    def step_times(self) -> StepTimes:
        """The measured steps of all sessions, as far as they are known."""
        return read_step_times(list(self.folders.values()))

    @property
    def left_out(self) -> int:
        """Groups of equal work that are not drawn."""
        return len({row.group for row in self.rows}) - len(self.panels)


def label_of(text: str) -> str:
    """A text from a result file on one short line."""
    return shorten(plain(text), LABEL_CHARACTERS)


def _series(rows: Sequence[Row], pools: Sequence[Pool]) -> tuple[Series, ...]:
    by_key = {_key(pool): pool for pool in pools}
    return tuple(Series(row, by_key[_key(row)]) for row in rows)


def _key(place: Row | Pool) -> tuple[object, ...]:
    return (
        *(place.variant, place.mode, place.effective_mode, place.options),
        *(place.num_devices, place.num_nodes),
    )
