"""The rows of a table: the runs of one configuration within a group of equal work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mgpubench.analysis import stats
from mgpubench.analysis.findings.mixed import MIXED_IN_ROW
from mgpubench.config.types import MODES
from mgpubench.results.schema import RunRecord, Status

UNJUDGED = ("passthrough", "oversubscribed")
"""Effective modes that do not measure the technique. They are shown, and get no verdict."""

RoundKey = tuple[str, int, int]
"""Session, round and sitting: two runs with equal keys are a pair."""


@dataclass(frozen=True)
class Pool:
    """The runs of one configuration within a group: one row of the table."""

    variant: str
    mode: str
    effective_mode: str
    num_devices: int
    num_nodes: int
    """Machines that these devices are in."""
    options: str
    runs: list[RunRecord] = field(compare=False)

    @cached_property
    def ok_runs(self) -> list[RunRecord]:
        """The runs that succeeded."""
        return [run for run in self.runs if run.is_ok]

    @cached_property
    def throughputs(self) -> list[float]:
        """Samples/s of the runs that succeeded."""
        return [throughput_of(run) for run in self.ok_runs]

    @cached_property
    def by_round(self) -> dict[RoundKey, float]:
        """Samples/s in each round of each sitting of each session."""
        rounds: defaultdict[RoundKey, list[float]] = defaultdict(list)
        for run in self.ok_runs:
            if run.session_id and run.round is not None:
                rounds[run.session_id, run.round, run.sitting or 1].append(throughput_of(run))
        # Two runs in one round are one observation of it.
        return {key: stats.geometric_mean(values) for key, values in rounds.items()}

    @cached_property
    def sequential_sessions(self) -> set[str]:
        """Sessions in which rounds may have been added after a look at the result."""
        return {run.session_id for run in self.ok_runs if run.rounds_added is not None}

    @cached_property
    def session_means(self) -> list[float]:
        """Mean log throughput of each session."""
        sessions: defaultdict[str, list[float]] = defaultdict(list)
        for run in self.ok_runs:
            sessions[run.session_id].append(throughput_of(run))
        return sorted(stats.log_mean(values) for values in sessions.values())

    @property
    def variant_number(self) -> int:
        """Place of the variant on the command line, from 1."""
        numbers = [run.variant_number for run in self.runs if run.variant_number]
        return min(numbers, default=0)

    def count(self, status: Status) -> int:
        """How many runs ended with this status."""
        return sum(run.status == status for run in self.runs)

    @cached_property
    def findings(self) -> tuple[str, ...]:
        """The codes of all runs, and of settings that the runs should have in common."""
        codes = mixed([self], MIXED_IN_ROW)
        return tuple(sorted(codes.union(*(run.finding_codes for run in self.runs))))

    @cached_property
    def finding_runs(self) -> dict[str, int]:
        """How many of the runs that succeeded have each finding."""
        return dict(Counter(code for run in self.ok_runs for code in run.finding_codes))

    def known(self, column: str) -> set[object]:
        """The known values of a column in the runs that succeeded."""
        return {getattr(run, column) for run in self.ok_runs} - {None, ""}

    @property
    def is_judged(self) -> bool:
        """False if it does not measure the technique."""
        return self.effective_mode not in UNJUDGED


def mixed(pools: Sequence[Pool], columns: Mapping[str, str]) -> set[str]:
    """The codes of the columns in which the runs of some pools differ."""
    return {
        code
        for code, column in columns.items()
        if len(set().union(*(pool.known(column) for pool in pools))) > 1
    }


def pool_runs(runs: Sequence[RunRecord]) -> list[Pool]:
    """The rows of a group, in the order of the table."""
    pools: defaultdict[tuple[str, str, str, int, int, str], list[RunRecord]] = defaultdict(list)
    for run in runs:
        devices = (run.num_devices, run.num_nodes or 1)
        pools[run.variant, run.mode, run.effective_mode, *devices, run.options].append(run)
    return sorted((Pool(*key, members) for key, members in pools.items()), key=_pool_order)


def _pool_order(pool: Pool) -> tuple[object, ...]:
    places: dict[str, int] = {mode: place for place, mode in enumerate(MODES)}
    place = places.get(pool.mode, len(places))
    variant = (pool.variant_number, pool.variant)
    devices = (pool.num_nodes, pool.num_devices)
    return place, pool.mode, devices, variant, pool.options, pool.effective_mode


def throughput_of(run: RunRecord) -> float:
    """Samples/s of a run that succeeded.

    Raises:
        ValueError: if it has none. The reader refuses such rows.
    """
    if run.throughput_samples_per_s is None:
        raise ValueError(f"run {run.run_id!r} is ok and has no throughput")
    return run.throughput_samples_per_s
