"""Which runs belong together: groups of equal work, and in them the rows of a table."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from mgpubench.analysis import stats
from mgpubench.analysis.findings.mixed import MIXED_IN_ROW
from mgpubench.config.types import MODES
from mgpubench.results.schema import RunRecord, Status

UNJUDGED = ("passthrough", "oversubscribed")
"""Effective modes that do not measure the technique. They are shown, and get no verdict."""

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


def group_of(record: RunRecord) -> Group:
    """The work of a run, as far as it must be equal in a fair comparison."""
    # If the batch that is fixed is unknown, the other one identifies the work.
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
class Pool:
    """The runs of one configuration within a group: one row of the table."""

    mode: str
    effective_mode: str
    num_devices: int
    options: str
    runs: list[RunRecord]

    @property
    def throughputs(self) -> list[float]:
        """Samples/s of the runs that succeeded."""
        return [throughput_of(run) for run in self.runs if run.is_ok]

    @property
    def by_round(self) -> dict[tuple[str, int], float]:
        """Samples/s in each round. Rounds of different sessions are different rounds."""
        rounds: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
        for run in self.runs:
            if run.is_ok and run.session_id and run.round is not None:
                rounds[run.session_id, run.round].append(throughput_of(run))
        # Two runs in one round are one observation of it.
        return {key: stats.geometric_mean(values) for key, values in rounds.items()}

    def count(self, status: Status) -> int:
        """How many runs ended with this status."""
        return sum(run.status == status for run in self.runs)

    @property
    def findings(self) -> tuple[str, ...]:
        """The codes of all runs, and of settings that the runs should have in common."""
        codes = mixed([self], MIXED_IN_ROW)
        return tuple(sorted(codes.union(*(run.finding_codes for run in self.runs))))

    @property
    def finding_runs(self) -> dict[str, int]:
        """How many of the runs that succeeded have each finding."""
        return dict(Counter(code for run in self.runs if run.is_ok for code in run.finding_codes))

    def known(self, column: str) -> set[object]:
        """The known values of a column in the runs that succeeded."""
        return {getattr(run, column) for run in self.runs if run.is_ok} - {None, ""}

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
    pools: defaultdict[tuple[str, str, int, str], list[RunRecord]] = defaultdict(list)
    for run in runs:
        pools[run.mode, run.effective_mode, run.num_devices, run.options].append(run)
    return sorted((Pool(*key, members) for key, members in pools.items()), key=_pool_order)


def _pool_order(pool: Pool) -> tuple[int, str, int, str, str]:
    places: dict[str, int] = {mode: place for place, mode in enumerate(MODES)}
    place = places.get(pool.mode, len(places))
    return place, pool.mode, pool.num_devices, pool.options, pool.effective_mode


def throughput_of(run: RunRecord) -> float:
    """Samples/s of a run that succeeded.

    Raises:
        ValueError: if it has none. The reader refuses such rows.
    """
    if run.throughput_samples_per_s is None:
        raise ValueError(f"run {run.run_id!r} is ok and has no throughput")
    return run.throughput_samples_per_s
