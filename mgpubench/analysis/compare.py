"""Is one mode faster than another? From the rows of runs.csv to the rows of the table.

Runs are compared only within a group of equal work. A row pools the runs of one configuration in
it, and its throughput is their geometric mean. All verdicts of a table against its baseline hold
together: with more rows, each interval is wider (Bonferroni). DDP against DP is a family of
comparisons of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

from mgpubench.analysis import stats
from mgpubench.analysis.comparison import (
    Comparison,
    Evidence,
    Session,
    conclude,
    interval_of_means,
)
from mgpubench.analysis.findings.mixed import SUPERLINEAR, UNEQUAL_LOADERS
from mgpubench.analysis.findings.steadiness import NOT_STEADY, is_steady
from mgpubench.analysis.groups import GROUP_KEY, Group, Pool, group_records, pool_runs
from mgpubench.analysis.metrics import scaling_efficiency
from mgpubench.analysis.stats import Interval, Verdict
from mgpubench.config.types import MODES
from mgpubench.results.schema import RunRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """The rows to divide by: those of a mode, of a mode with certain options, or of a variant."""

    mode: str = ""
    options: str | None = None
    """None: the row without options, or the only one."""
    variant: str = ""

    @property
    def name(self) -> str:
        """As `--baseline` takes it."""
        if self.variant:
            return self.variant
        return self.mode if self.options is None else f"{self.mode}/{self.options}"


SINGLE = Baseline(mode="single")
DP = Baseline(mode="dp")


def parse_baseline(text: str) -> Baseline:
    """`mode`, `mode/options`, or else the name of a variant."""
    mode, slash, options = text.partition("/")
    if mode in MODES:
        return Baseline(mode=mode, options=options if slash else None)
    return Baseline(variant=text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Versus:
    """A row against another one."""

    baseline: str
    """Name of the other row; empty if there is nothing to choose as a baseline."""
    margin: float
    """The relative difference that counts, e.g. 0.02."""
    comparison: Comparison | None = None
    """None if there is no such row, or this one has no runs that succeeded."""
    is_judged: bool = True
    """False for effective modes that do not measure the technique."""

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
    variant: str
    mode: str
    effective_mode: str
    num_devices: int
    options: str
    runs: int
    """Runs that succeeded, from which the figures are."""
    failed: int
    """Attempts that failed, including those that were repeated later."""
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

    @property
    def is_judged(self) -> bool:
        """False if the row does not measure the technique."""
        return self.versus_baseline is None or self.versus_baseline.is_judged


def compare(records: Sequence[RunRecord], baseline: Baseline | None, margin: float) -> list[Row]:
    """The rows for some runs, in an order that does not depend on theirs.

    `baseline` None means the first variant if a group has variants, else single if it is there,
    else dp. `margin` is the relative difference that counts, e.g. 0.02.
    """
    groups = group_records(records)
    rows = []
    for group in sorted(groups, key=_group_order):
        table = _Table(group, pool_runs(groups[group]), margin, baseline)
        rows += [table.row(pool) for pool in table.pools]
    return rows


@dataclass(frozen=True)
class _Table:
    """The pools of one group, which may be compared with each other."""

    group: Group
    pools: list[Pool]
    margin: float
    wanted: Baseline | None

    def row(self, pool: Pool) -> Row:
        speedup, speedup_ci = self._speedup(pool)
        throughput_ci = _total_interval(pool)
        versus_dp = self._versus_dp.get(id(pool))
        return Row(
            group=self.group,
            variant=pool.variant,
            mode=pool.mode,
            effective_mode=pool.effective_mode,
            num_devices=pool.num_devices,
            options=pool.options,
            runs=len(pool.ok_runs),
            failed=pool.count("failed"),
            interrupted=pool.count("interrupted"),
            throughput_samples_per_s=stats.geometric_mean(pool.throughputs)
            if pool.throughputs
            else None,
            throughput_ci=throughput_ci,
            speedup=speedup,
            speedup_ci=speedup_ci,
            scaling_efficiency=self._efficiency(pool, speedup),
            findings=tuple(sorted({*pool.findings, *self._differences(pool, speedup_ci)})),
            finding_runs=pool.finding_runs,
            versus_baseline=self._versus_baseline.get(id(pool)),
            versus_dp=versus_dp if pool.mode == "ddp" else None,
        )

    @cached_property
    def baseline(self) -> Baseline | None:
        """The baseline that was wanted, or the default one."""
        if self.wanted is not None:
            return self.wanted
        measured = [pool for pool in self.pools if pool.throughputs]
        if variants := [pool for pool in measured if pool.variant]:
            first = min(variants, key=lambda pool: (pool.variant_number, pool.variant))
            return Baseline(variant=first.variant)
        modes = {pool.mode for pool in measured}
        return next((Baseline(mode=mode) for mode in ("single", "dp") if mode in modes), None)

    @cached_property
    def _versus_baseline(self) -> dict[int, Versus]:
        """The comparison of each pool with the baseline, but for the baseline itself."""
        return self._family(self.baseline)

    @cached_property
    def _versus_dp(self) -> dict[int, Versus]:
        family = self._versus_baseline if self.baseline == DP else self._family(DP, "ddp")
        return {key: versus for key, versus in family.items() if versus.comparison}

    @cached_property
    def _versus_single(self) -> dict[int, Versus]:
        return self._versus_baseline if self.baseline == SINGLE else self._family(SINGLE)

    def _family(self, baseline: Baseline | None, mode: str = "") -> dict[int, Versus]:
        """The comparisons with one baseline, whose verdicts hold together."""
        partners = {
            id(pool): (pool, partner)
            for pool in self.pools
            if mode in ("", pool.mode)
            if (partner := self._partner(pool, baseline)) is not pool
        }
        evidence = {
            key: evidence_of(pool, partner)
            for key, (pool, partner) in partners.items()
            if partner is not None and pool.throughputs
        }
        judged = {
            key: partner is not None and pool.is_judged and partner.is_judged
            for key, (pool, partner) in partners.items()
        }
        deciding = sum(judged[key] and each.can_decide for key, each in evidence.items())
        error_rate = stats.ERROR_RATE / max(1, deciding)
        return {
            key: Versus(
                baseline=baseline.name if baseline else "",
                margin=self.margin,
                comparison=conclude(evidence[key], self.margin, error_rate)
                if key in evidence
                else None,
                is_judged=judged[key],
            )
            for key in partners
        }

    def _partner(self, pool: Pool, baseline: Baseline | None) -> Pool | None:
        """The pool that a pool is divided by; the pool itself if it is a baseline."""
        if baseline is None:
            return None
        candidates = [other for other in self.pools if _may_divide(pool, other, baseline)]
        alike = [other for other in candidates if other.is_judged == pool.is_judged] or candidates
        by_options = {other.options: other for other in alike}
        if baseline.options is not None:
            return by_options.get(baseline.options)
        if len(alike) == 1:
            return alike[0]
        if pool.mode == baseline.mode and alike:
            # Several rows of the baseline's mode: the one without options, or the first.
            return by_options.get("", alike[0])
        return by_options.get(pool.options, by_options.get(""))

    def _speedup(self, pool: Pool) -> tuple[float | None, Interval | None]:
        if not pool.throughputs:
            return None, None
        if self._partner(pool, SINGLE) is pool:
            return 1.0, None
        versus = self._versus_single.get(id(pool))
        return (versus.ratio, versus.interval) if versus else (None, None)

    def _efficiency(self, pool: Pool, speedup: float | None) -> float | None:
        """None if the devices share cores or one GPU, so that nothing could scale."""
        shared = self.group.device_type == "cpu" or pool.effective_mode == "oversubscribed"
        return None if speedup is None or shared else scaling_efficiency(speedup, pool.num_devices)

    def _differences(self, pool: Pool, speedup_ci: Interval | None) -> Iterator[str]:
        """Findings about a row as a whole, and about rows that it is compared with."""
        if not is_steady(pool.ok_runs):
            yield NOT_STEADY
        if speedup_ci and speedup_ci[0] > pool.num_devices and pool.is_judged:
            yield SUPERLINEAR
        single = self._partner(pool, SINGLE)
        if single is not None and self.group.scaling == "strong":
            counts = [side.known("loader_workers") for side in (pool, single)]
            if all(counts) and counts[0] != counts[1]:
                yield UNEQUAL_LOADERS


def _may_divide(pool: Pool, other: Pool, baseline: Baseline) -> bool:
    if not other.throughputs or (other.mode != "single" and other.num_devices != pool.num_devices):
        return False
    if baseline.variant:
        return other.variant == baseline.variant and other.mode == pool.mode
    return other.mode == baseline.mode and other.variant == pool.variant


def _group_order(group: Group) -> list[tuple[bool, object]]:
    values = [getattr(group, name) for name in GROUP_KEY]
    return [(value is None, value) for value in values]


def _total_interval(pool: Pool) -> Interval | None:
    """The 95 % interval of a row's throughput: over its runs, or over the means of its sessions."""
    means = pool.session_means
    if len(means) > 1:
        return interval_of_means(means, stats.ERROR_RATE)
    logs = tuple(map(log, pool.throughputs))
    return Session(logs=logs).interval(stats.ERROR_RATE) if logs else None


def evidence_of(changed: Pool, baseline: Pool) -> Evidence:
    """The log ratios of two pools in the rounds that both have, session by session."""
    sequential = changed.sequential_sessions | baseline.sequential_sessions
    ours, theirs = changed.by_round, baseline.by_round
    logs: defaultdict[str, list[float]] = defaultdict(list)
    for key in ours:
        if key in theirs:
            logs[key[0]].append(log(ours[key] / theirs[key]))
    return Evidence(
        sessions=tuple(
            Session(
                logs=tuple(sorted(values)),
                is_sequential=session in sequential,
                session_id=session,
            )
            for session, values in logs.items()
        ),
        unpaired_ratio=stats.geometric_mean(changed.throughputs)
        / stats.geometric_mean(baseline.throughputs),
    )
