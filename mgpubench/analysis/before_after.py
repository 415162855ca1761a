"""A change that one session cannot hold (a driver, a torch version): sessions before and after it.

The runs of a session are alike, so a session is one observation, and both sides need at least
three. The sides may differ in anything: every difference is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mgpubench.analysis import stats
from mgpubench.analysis.groups import GROUP_KEY, Group, group_records
from mgpubench.analysis.pairs import evidence_of
from mgpubench.analysis.pools import UNJUDGED, Pool, pool_runs
from mgpubench.analysis.stats import Interval, Verdict
from mgpubench.errors import NoUsableResults, RequestRefused
from mgpubench.results.schema import RunRecord


class Key(NamedTuple):
    """What identifies a row."""

    variant: str
    mode: str
    effective_mode: str
    num_devices: int
    num_nodes: int
    options: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A ratio of after to before."""

    ratio: float
    interval: Interval | None
    """None with fewer than three sessions on a side."""
    confidence: float | None
    verdict: Verdict | None
    sessions: tuple[int, int]
    """Before and after."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedRow:
    """One configuration before and after the change."""

    variant: str
    mode: str
    effective_mode: str
    num_devices: int
    num_nodes: int
    options: str
    before_samples_per_s: float
    after_samples_per_s: float
    throughput: Change
    speedup: Change | None
    """The change of the ratio to `single`. A faster machine does not move it, and it is blind to
    what slows `single` alike. None for `single`, and without it on both sides."""

    @property
    def is_judged(self) -> bool:
        """False if the row does not measure the technique."""
        return self.effective_mode not in UNJUDGED


@dataclass(frozen=True, kw_only=True, slots=True)
class BeforeAfter:
    """The comparison of two sides."""

    rows: list[ChangedRow]
    differences: dict[str, tuple[object, object]]
    """The fields of equal work in which the sides differ, with their values before and after."""
    device_type: str
    only_before: list[Key]
    """Configurations that have no run after the change that succeeded."""
    only_after: list[Key]


def compare_sides(
    before: Sequence[RunRecord], after: Sequence[RunRecord], margin: float
) -> BeforeAfter:
    """Compare sessions before a change with sessions after it.

    `margin` is the relative difference that counts, e.g. 0.02.

    Raises:
        RequestRefused: if the sides share a session, or a side holds different work.
        NoUsableResults: if they have no configuration in common.
    """
    _refuse_shared_sessions(before, after)
    first, pools_before = _only_group(before, "before")
    second, pools_after = _only_group(after, "after")
    common = [key for key in pools_before if key in pools_after]
    if not common:
        raise NoUsableResults("--before and --after have no mode on as many devices in common")
    means = {
        key: (pools_before[key].session_means, pools_after[key].session_means) for key in common
    }
    throughputs = _family(means, margin)
    speedups = _family(_speedups(pools_before, pools_after, common), margin)
    rows = [
        _changed_row(pools_before[key], pools_after[key], throughputs[key], speedups.get(key))
        for key in common
    ]
    differences = {
        name: (getattr(first, name), getattr(second, name))
        for name in GROUP_KEY
        if getattr(first, name) != getattr(second, name)
    }
    return BeforeAfter(
        rows=rows,
        differences=differences,
        device_type=second.device_type,
        only_before=[key for key in pools_before if key not in pools_after],
        only_after=[key for key in pools_after if key not in pools_before],
    )


def _refuse_shared_sessions(before: Sequence[RunRecord], after: Sequence[RunRecord]) -> None:
    shared = {run.session_id for run in before} & {run.session_id for run in after} - {""}
    if shared:
        raise RequestRefused(
            f"--before and --after share session {min(shared)}",
            "A session is before the change or after it.",
        )


def _changed_row(old: Pool, new: Pool, throughput: Change, speedup: Change | None) -> ChangedRow:
    return ChangedRow(
        variant=old.variant,
        mode=old.mode,
        effective_mode=old.effective_mode,
        num_devices=old.num_devices,
        num_nodes=old.num_nodes,
        options=old.options,
        before_samples_per_s=stats.geometric_mean(old.throughputs),
        after_samples_per_s=stats.geometric_mean(new.throughputs),
        throughput=throughput,
        speedup=speedup,
    )


Samples = tuple[Sequence[float], Sequence[float]]
"""One logarithm for each session, before and after."""


def _only_group(runs: Sequence[RunRecord], side: str) -> tuple[Group, dict[Key, Pool]]:
    groups = group_records([run for run in runs if run.is_ok])
    if not groups:
        raise NoUsableResults(f"--{side} has no run that succeeded")
    if len(groups) > 1:
        names = [name for name in GROUP_KEY if len({getattr(each, name) for each in groups}) > 1]
        raise RequestRefused(
            f"--{side} holds runs of different work: they differ in {', '.join(names)}",
            "Name sessions of one kind on each side.",
        )
    ((group, members),) = groups.items()
    return group, {_key(pool): pool for pool in pool_runs(members)}


def _key(pool: Pool) -> Key:
    devices = (pool.num_devices, pool.num_nodes)
    return Key(pool.variant, pool.mode, pool.effective_mode, *devices, pool.options)


def _speedups(
    before: Mapping[Key, Pool], after: Mapping[Key, Pool], common: Sequence[Key]
) -> dict[Key, Samples]:
    """Mean log ratio to `single` in each session, for the rows that have one on both sides."""
    samples: dict[Key, Samples] = {}
    for key in common:
        if before[key].mode != "single":
            sides = tuple(_log_speedups(pools[key], pools) for pools in (before, after))
            if all(sides):
                samples[key] = (sides[0], sides[1])
    return samples


def _log_speedups(pool: Pool, pools: Mapping[Key, Pool]) -> list[float]:
    singles = [
        other
        for other in pools.values()
        if other.mode == "single" and other.variant == pool.variant
    ]
    if len(singles) != 1:
        return []
    return [session.mean for session in evidence_of(pool, singles[0]).sessions]


def _family(samples: Mapping[Key, Samples], margin: float) -> dict[Key, Change]:
    """Changes whose verdicts hold together. Rows that do not measure the technique get none."""
    judged = {key for key in samples if key.effective_mode not in UNJUDGED}
    deciding = sum(min(map(len, samples[key])) >= stats.MIN_SESSIONS for key in judged)
    error_rate = stats.ERROR_RATE / max(1, deciding)
    changes = {key: _change(*sides, margin, error_rate) for key, sides in samples.items()}
    return {
        key: change if key in judged else replace(change, verdict=None)
        for key, change in changes.items()
    }


def _change(
    before: Sequence[float], after: Sequence[float], margin: float, error_rate: float
) -> Change:
    difference = stats.mean(after) - stats.mean(before)
    interval = None
    if min(len(before), len(after)) >= stats.MIN_SESSIONS:
        half_width = stats.welch_half_width(after, before, error_rate)
        interval = stats.to_interval(difference, half_width)
    return Change(
        ratio=stats.to_ratio(difference),
        interval=interval,
        confidence=1 - error_rate if interval else None,
        verdict=stats.judge(interval, margin) if interval else None,
        sessions=(len(before), len(after)),
    )
