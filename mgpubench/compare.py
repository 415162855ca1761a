"""Is one mode faster than another? From the rows of runs.csv to the rows of the table.

Runs are compared only within a group of equal work. A row pools the runs of one configuration in
it, and its throughput is their geometric mean. Ratios come from `stats`: paired where both sides
have rounds in common, so that drift between the rounds falls on both alike.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import log
from typing import Any

from mgpubench import stats
from mgpubench.config import MODES, Mode
from mgpubench.metrics import scaling_efficiency
from mgpubench.records import RunRecord, Status
from mgpubench.stats import Comparison, Interval, Verdict

UNJUDGED = ("passthrough", "oversubscribed")
"""Effective modes that are no speed of the technique: shown, and never given a verdict."""

MIXED = {"mixed-threads": "threads_per_rank", "mixed-models": "model_digest"}
"""Findings about runs that are pooled and had different values in a column."""

_DEVICE_COUNT = re.compile(r"(^|[+;,]\s*)\d+x ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """What runs must have in common to be equal work."""

    machine: str
    device_models: str
    """`device_names` without the counts."""
    device_type: str
    model: str
    num_parameters: int | None
    data: str
    image_size: int | None
    precision: str
    channels_last: bool | None
    compiled: bool | None
    workers_per_device: int | None
    scaling: str
    batch_per_device: int | None
    """None in strong scaling, where it depends on the number of devices."""
    global_batch: int | None
    """None in weak scaling, for the same reason."""
    warmup_steps: int | None
    steps: int | None
    torch_version: str
    cuda_version: str
    driver_version: str


GROUP_KEY = tuple(field.name for field in fields(Group))


@dataclass(frozen=True, kw_only=True, slots=True)
class Versus:
    """A row against another one. Where there is no other, only its mode is known."""

    baseline: Mode | None
    margin: float
    """The relative difference that counts, e.g. 0.02."""
    ratio: float | None = None
    ratio_ci: Interval | None = None
    pairs: int = 0
    """Rounds in common if paired, else the runs of the side that has fewer."""
    paired: bool | None = None
    verdict: Verdict | None = None
    rounds_needed: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One row of the table: all runs of one configuration within a group of equal work."""

    group: Group
    mode: str
    effective_mode: str
    num_devices: int
    options: str
    runs: int
    """Runs that succeeded; the figures are theirs."""
    failed: int
    interrupted: int
    throughput_samples_per_s: float | None
    throughput_ci: Interval | None
    speedup: float | None
    speedup_ci: Interval | None
    scaling_efficiency: float | None
    findings: tuple[str, ...]
    versus_baseline: Versus | None
    """None for the baseline itself."""
    versus_dp: Versus | None
    """ddp against dp on as many devices, whatever the baseline; None where there is no dp."""


def compare(records: Sequence[RunRecord], baseline: Mode | None, margin: float) -> list[Row]:
    """The table for some runs, in an order that does not depend on theirs.

    `baseline` None means single where a group has it, else dp. `margin` is the relative difference
    that counts, e.g. 0.02.
    """
    groups: defaultdict[Group, list[RunRecord]] = defaultdict(list)
    for record in records:
        groups[group_of(record)].append(record)
    rows = []
    for group in sorted(groups, key=_group_order):
        table = _Table(group, _pool(groups[group]), margin)
        rows += [table.row(pool, baseline) for pool in table.pools]
    return rows


def group_of(record: RunRecord) -> Group:
    """The work that a run did, so far as it must be equal in a fair comparison."""
    # Where the deciding batch is unknown, the other one tells the work apart.
    weak = record.scaling == "weak" and record.batch_per_device is not None
    strong = record.scaling == "strong" and record.global_batch is not None
    derived: dict[str, Any] = {
        "device_models": _DEVICE_COUNT.sub(r"\1", record.device_names),
        "batch_per_device": None if strong else record.batch_per_device,
        "global_batch": None if weak else record.global_batch,
    }
    plain = {name: getattr(record, name) for name in GROUP_KEY if name not in derived}
    return Group(**plain, **derived)


@dataclass(frozen=True, slots=True)
class _Pool:
    """The runs of one row."""

    mode: str
    effective_mode: str
    num_devices: int
    options: str
    runs: list[RunRecord]

    @property
    def throughputs(self) -> list[float]:
        """Samples/s of the runs that succeeded."""
        return [_throughput(run) for run in self.runs if run.is_ok]

    @property
    def by_round(self) -> dict[tuple[str, int], float]:
        """Samples/s in each round; the rounds of different sessions are different rounds."""
        rounds: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
        for run in self.runs:
            if run.is_ok and run.session_id and run.round is not None:
                rounds[run.session_id, run.round].append(_throughput(run))
        # Two runs in one round are one observation of it.
        return {key: stats.geometric_mean(values) for key, values in rounds.items()}

    def count(self, status: Status) -> int:
        """The runs that ended like this."""
        return sum(run.status == status for run in self.runs)

    @property
    def findings(self) -> tuple[str, ...]:
        """The codes of all runs, and of what they do not have in common and should."""
        ok = [run for run in self.runs if run.is_ok]
        values = {code: {getattr(run, column) for run in ok} for code, column in MIXED.items()}
        mixed = {code for code, found in values.items() if len(found - {None, ""}) > 1}
        return tuple(sorted(mixed.union(*(run.finding_codes for run in self.runs))))

    @property
    def is_judged(self) -> bool:
        return self.effective_mode not in UNJUDGED


@dataclass(frozen=True, slots=True)
class _Table:
    """The pools of one group, which may be compared with each other."""

    group: Group
    pools: list[_Pool]
    margin: float

    def row(self, pool: _Pool, baseline: Mode | None) -> Row:
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
            findings=pool.findings,
            versus_baseline=self._versus_baseline(pool, baseline or self._default_baseline()),
            versus_dp=self._versus_dp(pool),
        )

    def _speedup(self, pool: _Pool) -> tuple[float | None, Interval | None]:
        single = self._partner(pool, "single")
        if single is None or not pool.throughputs:
            return None, None
        if single is pool:
            return 1.0, None
        comparison = _compare_pools(pool, single, self.margin)
        return comparison.ratio, comparison.interval

    def _efficiency(self, pool: _Pool, speedup: float | None) -> float | None:
        """Not where the devices share cores, or share one GPU: nothing could scale there."""
        shared = self.group.device_type == "cpu" or pool.effective_mode == "oversubscribed"
        return None if speedup is None or shared else scaling_efficiency(speedup, pool.num_devices)

    def _default_baseline(self) -> Mode | None:
        modes = [pool.mode for pool in self.pools if pool.throughputs]
        return next((mode for mode in ("single", "dp") if mode in modes), None)

    def _versus_baseline(self, pool: _Pool, baseline: Mode | None) -> Versus | None:
        if pool.mode == baseline:
            return None
        partner = self._partner(pool, baseline)
        if partner is None:
            return Versus(baseline=baseline, margin=self.margin)
        return self._versus(pool, partner, baseline)

    def _versus_dp(self, pool: _Pool) -> Versus | None:
        partner = self._partner(pool, "dp") if pool.mode == "ddp" else None
        return None if partner is None else self._versus(pool, partner, "dp")

    def _versus(self, pool: _Pool, partner: _Pool, baseline: Mode | None) -> Versus:
        if not pool.throughputs:
            return Versus(baseline=baseline, margin=self.margin)
        comparison = _compare_pools(pool, partner, self.margin)
        judged = pool.is_judged and partner.is_judged
        return Versus(
            baseline=baseline,
            margin=self.margin,
            ratio=comparison.ratio,
            ratio_ci=comparison.interval,
            pairs=comparison.pairs,
            paired=comparison.paired,
            verdict=comparison.verdict if judged else None,
            rounds_needed=comparison.rounds_needed if judged else None,
        )

    def _partner(self, pool: _Pool, mode: Mode | None) -> _Pool | None:
        """The pool of a mode to divide by: same devices (single has its own), same options."""
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


def _pool(runs: Sequence[RunRecord]) -> list[_Pool]:
    pools: defaultdict[tuple[str, str, int, str], list[RunRecord]] = defaultdict(list)
    for run in runs:
        pools[run.mode, run.effective_mode, run.num_devices, run.options].append(run)
    return sorted((_Pool(*key, members) for key, members in pools.items()), key=_pool_order)


def _pool_order(pool: _Pool) -> tuple[int, str, int, str, str]:
    places: dict[str, int] = {mode: place for place, mode in enumerate(MODES)}
    place = places.get(pool.mode, len(places))
    return place, pool.mode, pool.num_devices, pool.options, pool.effective_mode


def _group_order(group: Group) -> list[tuple[bool, object]]:
    values = [getattr(group, name) for name in GROUP_KEY]
    return [(value is None, value) for value in values]


def _compare_pools(changed: _Pool, baseline: _Pool, margin: float) -> Comparison:
    ours, theirs = changed.by_round, baseline.by_round
    pairs = [(ours[key], theirs[key]) for key in ours if key in theirs]
    if pairs:
        return stats.compare_paired(pairs, margin)
    return stats.compare_unpaired(changed.throughputs, baseline.throughputs, margin)


def _throughput(run: RunRecord) -> float:
    if run.throughput_samples_per_s is None:
        raise ValueError(f"run {run.run_id!r} is ok and has no throughput")
    return run.throughput_samples_per_s
