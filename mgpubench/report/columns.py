"""The columns of compare's table, and how a row is written in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mgpubench.analysis.compare import Row, Versus
from mgpubench.analysis.metrics import throughput_per_device
from mgpubench.analysis.stats import Interval
from mgpubench.format import (
    UNKNOWN,
    format_count,
    format_interval,
    format_percent,
    format_rate,
    format_ratio,
    plain,
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: a header of one or two lines, and a cell for each row."""

    header: str
    cells: list[str]
    is_number: bool = True


def comparison_columns(rows: Sequence[Row]) -> list[Column]:
    """The columns of a table, without those that would be empty."""
    against = [row.versus_baseline for row in rows]
    baseline = next((versus.baseline for versus in against if versus), None) or "baseline"
    ratio_is_speedup = baseline == "single"
    columns = [
        Column("mode", [row_label(row) for row in rows], is_number=False),
        Column("devices", [str(row.num_devices) for row in rows]),
        Column("runs", [_runs(row) for row in rows]),
        Column("total\nsamples/s", [format_rate(row.throughput_samples_per_s) for row in rows]),
        Column("95 % CI of\nthe total", [_rate_interval(row.throughput_ci) for row in rows]),
        Column("samples/s\nper device", [format_rate(_per_device(row)) for row in rows]),
        Column("efficiency", [format_percent(row.scaling_efficiency) for row in rows]),
        Column("speed-up", [format_ratio(row.speedup) for row in rows]),
        Column(
            f"{'speed-up' if ratio_is_speedup else 'ratio'} to\n{baseline}",
            [_ratio(versus) for versus in against],
        ),
        Column("95 % CI of\nthe ratio", [_ratio_interval(versus) for versus in against]),
        Column("verdict", [_verdict(versus) for versus in against], is_number=False),
    ]
    if ratio_is_speedup:
        columns = [column for column in columns if column.header != "speed-up"]
    return [column for column in columns if not _is_left_out(column)]


def row_label(row: Row) -> str:
    """The mode, what really ran if that differs, and the options: `dp (cpu-replicas)`."""
    parts = [row.mode]
    if row.effective_mode not in ("", row.mode):
        parts.append(f"({row.effective_mode})")
    if row.options:
        parts += row.options.split(";")
    return plain(" ".join(parts))


def row_place(row: Row) -> str:
    """A row as sentences name it: `ddp on 2 devices`."""
    return f"{row_label(row)} on {format_count(row.num_devices, 'device')}"


def _is_left_out(column: Column) -> bool:
    """Few runs have no interval, and a CPU has no efficiency: empty columns would mislead."""
    is_optional = column.header.startswith("95 %") or column.header == "efficiency"
    return is_optional and set(column.cells) == {UNKNOWN}


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


def _ratio_interval(versus: Versus | None) -> str:
    return format_interval(versus.interval if versus else None)


def _verdict(versus: Versus | None) -> str:
    if versus is None or versus.comparison is None or versus.verdict is None:
        return UNKNOWN
    return versus.verdict if versus.comparison.paired else f"{versus.verdict} (unpaired)"
