"""The columns of compare's table, and how a row is written in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mgpubench.analysis.metrics import throughput_per_device
from mgpubench.analysis.row import Row, Versus
from mgpubench.analysis.stats import ERROR_RATE, Interval
from mgpubench.format import (
    UNKNOWN,
    format_confidence,
    format_cost,
    format_count,
    format_interval,
    format_percent,
    format_rate,
    format_ratio,
    plain,
)
from mgpubench.results.schema import RunRecord


@dataclass(frozen=True, slots=True)
class Column:
    """One column: a header of one or two lines, and a cell for each row."""

    header: str
    cells: list[str]
    is_number: bool = True
    is_optional: bool = False
    """Left out if all its cells are unknown, since an empty column would mislead."""


def comparison_columns(rows: Sequence[Row]) -> list[Column]:
    """The columns of a table, without optional ones that would be empty."""
    against = [row.versus_baseline for row in rows]
    baseline = next((versus.baseline for versus in against if versus), "") or "baseline"
    columns = [
        Column("mode", [row_label(row) for row in rows], is_number=False),
        machines_column(rows),
        Column("devices", [str(row.num_devices) for row in rows]),
        Column("runs", [_runs(row) for row in rows]),
        Column("total\nsamples/s", [format_rate(row.throughput_samples_per_s) for row in rows]),
        Column(
            f"{format_confidence(1 - ERROR_RATE)} CI of\nthe total",
            [_rate_interval(row.throughput_ci) for row in rows],
            is_optional=True,
        ),
        Column("samples/s\nper device", [format_rate(_per_device(row)) for row in rows]),
        Column(
            "efficiency",
            [format_percent(row.scaling_efficiency) for row in rows],
            is_optional=True,
        ),
        Column(
            "efficiency\nover machines",
            [format_percent(row.node_efficiency) for row in rows],
            is_optional=True,
        ),
        *_energy_columns(rows),
        *_speedup_columns(rows, baseline),
        Column(
            f"{'speed-up' if baseline == 'single' else 'ratio'} to\n{plain(baseline)}",
            [_ratio(versus) for versus in against],
        ),
        Column(
            f"{_confidence(against)} CI of\nthe ratio",
            [format_interval(versus.interval if versus else None) for versus in against],
            is_optional=True,
        ),
        Column("verdict", [_verdict(versus) for versus in against], is_number=False),
    ]
    return without_empty(columns)


def machines_column(rows: Sequence[Row]) -> Column:
    """The machines of each row; unknown, and so left out, if all rows have one."""
    have_several = any(row.num_nodes > 1 for row in rows)
    cells = [str(row.num_nodes) if have_several else UNKNOWN for row in rows]
    return Column("machines", cells, is_optional=True)


def row_label(row: Row | RunRecord) -> str:
    """The mode, what really ran if that differs, and variant or options: `dp (cpu-replicas)`."""
    parts = [row.mode]
    if row.effective_mode not in ("", row.mode):
        parts.append(f"({row.effective_mode})")
    if row.variant:
        parts.append(row.variant)
    elif row.options:
        parts += row.options.split(";")
    return plain(" ".join(parts))


def row_place(row: Row) -> str:
    """A row as sentences name it: `ddp on 2 devices`."""
    place = f"{row_label(row)} on {format_count(row.num_devices, 'device')}"
    return f"{place} of {row.num_nodes} machines" if row.num_nodes > 1 else place


def without_empty(columns: Sequence[Column]) -> list[Column]:
    """The columns of a table, without optional ones in which nothing is known."""
    return [
        column for column in columns if not column.is_optional or set(column.cells) != {UNKNOWN}
    ]


def _energy_columns(rows: Sequence[Row]) -> list[Column]:
    """Energy and costs, as far as they are known."""
    per_joule = [format_rate(row.samples_per_joule) for row in rows]
    costs = [format_cost(row.cost_per_million_samples) for row in rows]
    return [
        Column("samples\nper joule", per_joule, is_optional=True),
        Column("cost of 1M\nsamples", costs, is_optional=True),
    ]


def _speedup_columns(rows: Sequence[Row], baseline: str) -> list[Column]:
    """Left out if the ratio is the speed-up."""
    if baseline == "single":
        return []
    cells = [format_ratio(row.speedup) for row in rows]
    return [Column("speed-up", cells, is_optional=True)]


def _confidence(against: Sequence[Versus | None]) -> str:
    """The confidence of the intervals of a table, which all rows have in common."""
    known = [
        versus.comparison.confidence
        for versus in against
        if versus and versus.comparison and versus.comparison.confidence
    ]
    return format_confidence(known[0] if known else 1 - ERROR_RATE)


def _runs(row: Row) -> str:
    others = (("failed", row.failed), ("interrupted", row.interrupted))
    return ", ".join([str(row.runs), *(f"{count} {what}" for what, count in others if count)])


def _per_device(row: Row) -> float | None:
    total = row.throughput_samples_per_s
    return None if total is None else throughput_per_device(total, row.num_devices)


def _rate_interval(interval: Interval | None) -> str:
    return UNKNOWN if interval is None else "..".join(map(format_rate, interval))


def _ratio(versus: Versus | None) -> str:
    return "baseline" if versus is None else format_ratio(versus.ratio)


def _verdict(versus: Versus | None) -> str:
    if versus is None or versus.comparison is None or versus.verdict is None:
        return UNKNOWN
    is_in_both = versus.comparison.method == "both" and versus.verdict != "undecided"
    return f"{versus.verdict} (in both)" if is_in_both else versus.verdict
