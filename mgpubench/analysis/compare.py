"""Is one mode faster than another? From the rows of runs.csv to the rows of the table.

Runs are compared only within a group of equal work. A row pools the runs of one configuration in
it, and its throughput is their geometric mean. Ratios come from `stats`: paired where both sides
have rounds in common, so that drift between the rounds falls on both alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log

from mgpubench.analysis import stats
from mgpubench.analysis.findings.mixed import MIXED_IN_TABLE, UNEQUAL_LOADERS
from mgpubench.analysis.groups import (
    GROUP_KEY,
    Group,
    Pool,
    group_of,
    mixed,
    pool_runs,
)
from mgpubench.analysis.metrics import scaling_efficiency
from mgpubench.analysis.stats import Comparison, Interval, Verdict
from mgpubench.config.types import Mode
from mgpubench.results.schema import RunRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Versus:
    """A row against another one."""

    baseline: Mode | None
    """The mode of the other row."""
    margin: float
    """The relative difference that counts, e.g. 0.02."""
    comparison: Comparison | None = None
    """None if there is no such row, or this one has no runs that succeeded."""
    is_judged: bool = True
    """False for effective modes that are no speed of the technique."""

    @property
    def ratio(self) -> float | None:
        """The throughput divided by that of the other row."""
        return self.comparison.ratio if self.comparison else None

    @property
    def interval(self) -> Interval | None:
        """The confidence interval of the ratio."""
        return self.comparison.interval if self.comparison else None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict; None if there is nothing to judge."""
        return self.comparison.verdict if self.comparison and self.is_judged else None

    @property
    def rounds_needed(self) -> int | None:
        """Rounds that would settle an undecided verdict."""
        return self.comparison.rounds_needed if self.comparison and self.is_judged else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One row of the table: all runs of one configuration within a group of equal work."""

    group: Group
    mode: str
    effective_mode: str
    num_devices: int
    options: str
    runs: int
    """Runs that succeeded, from which the figures are."""
    failed: int
    interrupted: int
    throughput_samples_per_s: float | None
    throughput_ci: Interval | None
    speedup: float | None
    speedup_ci: Interval | None
    scaling_efficiency: float | None
    findings: tuple[str, ...]
    finding_runs: dict[str, int]
    """How many runs have each finding that single runs have."""
    versus_baseline: Versus | None
    """None for the baseline itself."""
    versus_dp: Versus | None
    """ddp against dp on as many devices, with any baseline; None if there is no dp."""


def compare(records: Sequence[RunRecord], baseline: Mode | None, margin: float) -> list[Row]:
    """The rows for some runs, in an order that does not depend on theirs.

    `baseline` None means single if a group has it, else dp. `margin` is the relative difference
    that counts, e.g. 0.02.
    """
    groups: defaultdict[Group, list[RunRecord]] = defaultdict(list)
    for record in records:
        groups[group_of(record)].append(record)
    rows = []
    for group in sorted(groups, key=_group_order):
        table = _Table(group, pool_runs(groups[group]), margin)
        rows += [table.row(pool, baseline) for pool in table.pools]
    return rows


@dataclass(frozen=True, slots=True)
class _Table:
    """The pools of one group, which may be compared with each other."""

    group: Group
    pools: list[Pool]
    margin: float

    def row(self, pool: Pool, baseline: Mode | None) -> Row:
        throughputs = pool.throughputs
        logs = [log(throughput) for throughput in throughputs]
        speedup, speedup_ci = self._speedup(pool)
        return Row(
            group=self.group,
            mode=pool.mode,
            effective_mode=pool.effective_mode,
            num_devices=pool.num_devices,
            options=pool.options,
            runs=len(logs),
            failed=pool.count("failed"),
            interrupted=pool.count("interrupted"),
            throughput_samples_per_s=stats.geometric_mean(throughputs) if logs else None,
            throughput_ci=stats.estimate(logs).interval if logs else None,
            speedup=speedup,
            speedup_ci=speedup_ci,
            scaling_efficiency=self._efficiency(pool, speedup),
            findings=tuple(sorted({*pool.findings, *self._differences(pool)})),
            finding_runs=pool.finding_runs,
            versus_baseline=self._versus_baseline(pool, baseline or self._default_baseline()),
            versus_dp=self._versus_dp(pool),
        )

    def _differences(self, pool: Pool) -> Iterator[str]:
        """Findings about settings that differ from the rows this one is compared with."""
        yield from mixed(self.pools, MIXED_IN_TABLE)
        single = self._partner(pool, "single")
        if single is not None and self.group.scaling == "strong":
            counts = [side.known("loader_workers") for side in (pool, single)]
            if all(counts) and counts[0] != counts[1]:
                yield UNEQUAL_LOADERS

    def _speedup(self, pool: Pool) -> tuple[float | None, Interval | None]:
        single = self._partner(pool, "single")
        if single is None or not pool.throughputs:
            return None, None
        if single is pool:
            return 1.0, None
        comparison = _compare_pools(pool, single, self.margin)
        return comparison.ratio, comparison.interval

    def _efficiency(self, pool: Pool, speedup: float | None) -> float | None:
        """None if the devices share cores or one GPU, so that nothing could scale."""
        shared = self.group.device_type == "cpu" or pool.effective_mode == "oversubscribed"
        return None if speedup is None or shared else scaling_efficiency(speedup, pool.num_devices)

    def _default_baseline(self) -> Mode | None:
        modes = [pool.mode for pool in self.pools if pool.throughputs]
        return next((mode for mode in ("single", "dp") if mode in modes), None)

    def _versus_baseline(self, pool: Pool, baseline: Mode | None) -> Versus | None:
        if pool.mode == baseline:
            return None
        partner = self._partner(pool, baseline)
        if partner is None:
            return Versus(baseline=baseline, margin=self.margin)
        return self._versus(pool, partner, baseline)

    def _versus_dp(self, pool: Pool) -> Versus | None:
        partner = self._partner(pool, "dp") if pool.mode == "ddp" else None
        return None if partner is None else self._versus(pool, partner, "dp")

    def _versus(self, pool: Pool, partner: Pool, baseline: Mode | None) -> Versus:
        if not pool.throughputs:
            return Versus(baseline=baseline, margin=self.margin)
        return Versus(
            baseline=baseline,
            margin=self.margin,
            comparison=_compare_pools(pool, partner, self.margin),
            is_judged=pool.is_judged and partner.is_judged,
        )

    def _partner(self, pool: Pool, mode: Mode | None) -> Pool | None:
        """The pool of a mode to divide by: equal options, and equal devices unless it is single."""
        candidates = [
            other
            for other in self.pools
            if other.mode == mode
            and other.throughputs
            and (mode == "single" or other.num_devices == pool.num_devices)
        ]
        alike = [other for other in candidates if other.is_judged == pool.is_judged] or candidates
        if len(alike) == 1:
            return alike[0]
        by_options = {other.options: other for other in alike}
        return by_options.get(pool.options, by_options.get(""))


def _group_order(group: Group) -> list[tuple[bool, object]]:
    values = [getattr(group, name) for name in GROUP_KEY]
    return [(value is None, value) for value in values]


def _compare_pools(changed: Pool, baseline: Pool, margin: float) -> Comparison:
    ours, theirs = changed.by_round, baseline.by_round
    pairs = [(ours[key], theirs[key]) for key in ours if key in theirs]
    if pairs:
        return stats.compare_paired(pairs, margin)
    return stats.compare_unpaired(changed.throughputs, baseline.throughputs, margin)
