"""Is one mode faster than another? From the rows of runs.csv to the rows of the table.

Runs are compared only within a group of equal work. A row pools the runs of one configuration in
it, and its throughput is their geometric mean. All verdicts of a table against its baseline hold
together: with more rows, each interval is wider (Bonferroni). DDP against DP is a family of
comparisons of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from mgpubench.analysis import stats
from mgpubench.analysis.comparison import conclude
from mgpubench.analysis.findings.mixed import SUPERLINEAR, UNEQUAL_LOADERS
from mgpubench.analysis.findings.steadiness import NOT_STEADY, is_steady
from mgpubench.analysis.gpu_metrics import pooled_samples_per_joule
from mgpubench.analysis.groups import GROUP_KEY, Group, group_records
from mgpubench.analysis.metrics import node_efficiency, scaling_efficiency
from mgpubench.analysis.pairs import evidence_of, interval_of_throughput
from mgpubench.analysis.pools import Pool, pool_runs
from mgpubench.analysis.row import DP, SINGLE, Baseline, Row, Versus, default_baseline
from mgpubench.analysis.stats import Interval
from mgpubench.results.schema import RunRecord


def compare(records: Sequence[RunRecord], baseline: Baseline | None, margin: float) -> list[Row]:
    """The rows for some runs, in an order that does not depend on theirs.

    `baseline` None means the first variant if a group has variants, else the first of single, dp
    and ddp that is there (not ddp if it is alone). `margin` is the relative difference that counts,
    e.g. 0.02.
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
        throughput_ci = interval_of_throughput(pool)
        versus_dp = self._versus_dp.get(id(pool))
        return Row(
            group=self.group,
            variant=pool.variant,
            mode=pool.mode,
            effective_mode=pool.effective_mode,
            num_devices=pool.num_devices,
            num_nodes=pool.num_nodes,
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
            node_efficiency=self._node_efficiency(pool),
            findings=tuple(sorted({*pool.findings, *self._differences(pool, speedup_ci)})),
            finding_runs=pool.finding_runs,
            versus_baseline=self._versus_baseline.get(id(pool)),
            versus_dp=versus_dp if pool.mode == "ddp" else None,
            samples_per_joule=pooled_samples_per_joule(pool.ok_runs),
        )

    @cached_property
    def baseline(self) -> Baseline | None:
        """The baseline that was wanted, or the default one."""
        return self._default if self.wanted is None else self.wanted

    @cached_property
    def _default(self) -> Baseline | None:
        measured = [pool for pool in self.pools if pool.throughputs]
        if variants := [pool for pool in measured if pool.variant]:
            first = min(variants, key=lambda pool: (pool.variant_number, pool.variant))
            return Baseline(variant=first.variant)
        return default_baseline({pool.mode for pool in measured})

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
                is_default=bool(mode) or baseline == self._default,
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

    def _node_efficiency(self, pool: Pool) -> float | None:
        """None unless the same mode was measured on one of the machines too."""
        per_node, rest = divmod(pool.num_devices, pool.num_nodes)
        ones = [
            other
            for other in self.pools
            if (other.num_nodes, other.num_devices) == (1, per_node)
            and (other.variant, other.mode, other.options, other.effective_mode)
            == (pool.variant, pool.mode, pool.options, pool.effective_mode)
        ]
        shared = self.group.device_type == "cpu" or not pool.is_judged
        if pool.num_nodes == 1 or rest or shared or not pool.throughputs:
            return None
        alone = [stats.geometric_mean(one.throughputs) for one in ones if one.throughputs]
        together = stats.geometric_mean(pool.throughputs)
        return node_efficiency(together, alone[0], pool.num_nodes) if alone else None

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
    if not other.throughputs:
        return False
    of_other, of_pool = ((each.num_devices, each.num_nodes) for each in (other, pool))
    if other.mode != "single" and of_other != of_pool:
        return False
    if baseline.variant:
        return other.variant == baseline.variant and other.mode == pool.mode
    return other.mode == baseline.mode and other.variant == pool.variant


def _group_order(group: Group) -> list[tuple[bool, bool, object]]:
    values = [getattr(group, name) for name in GROUP_KEY]
    # Text is put behind the true and false of the same field.
    return [(value is None, isinstance(value, str), value) for value in values]
