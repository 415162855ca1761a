"""The rows of the table that answers which mode is faster, and what they are divided by."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mgpubench.analysis.comparison import Comparison
from mgpubench.analysis.groups import Group
from mgpubench.analysis.stats import Interval, Verdict
from mgpubench.config.types import DEFAULT_MODES, MODES


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


def default_baseline(modes: Collection[str]) -> Baseline | None:
    """The first of single, dp and ddp that was measured; None if there is nothing to divide."""
    # Without any other mode, ddp has nothing to be compared with.
    candidates = DEFAULT_MODES if set(modes) - {"ddp"} else ()
    return next((Baseline(mode=mode) for mode in candidates if mode in modes), None)


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
    is_default: bool = True
    """True if `run --until decided` settles this comparison: it uses the default baseline."""
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
    num_nodes: int
    """Machines that these devices are in."""
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
    node_efficiency: float | None
    """Against one machine with as many devices as each of these has; None without such a row."""
    findings: tuple[str, ...]
    finding_runs: dict[str, int]
    """How many runs have each finding that single runs have."""
    versus_baseline: Versus | None
    """None for the baseline itself."""
    versus_dp: Versus | None
    """ddp against dp on as many devices, with any baseline; None if there is no dp."""
    samples_per_joule: float | None = None
    """Of the runs whose energy is known."""
    cost_per_million_samples: float | None = None
    """None unless there is a price, and all that it is paid for is known."""

    @property
    def is_judged(self) -> bool:
        """False if the row does not measure the technique."""
        return self.versus_baseline is None or self.versus_baseline.is_judged
