"""What `comm` prints: its plan, and at the end the time and bandwidths of each size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.text import Text

from mgpubench.analysis.collectives import Fit, SizeRow, fits, size_rows
from mgpubench.analysis.stats import MIN_ROUNDS, Interval
from mgpubench.config.comm_plan import TIMED_BLOCKS, CommConfig
from mgpubench.format import (
    UNKNOWN,
    format_bandwidth,
    format_binary,
    format_count,
    format_microseconds,
    format_percent,
    plain,
)
from mgpubench.report.columns import Column, without_empty
from mgpubench.report.console import open_console
from mgpubench.report.tables import print_table
from mgpubench.results.comm import CommRecord

CPU_NOTE = "CPU rows: gloo between processes. They test the tool, and are no forecast for GPUs."


def print_collectives(records: Sequence[CommRecord]) -> None:
    """Print a table of all sizes, one of the lines through them, and sentences about both."""
    console = open_console()
    rows, lines = size_rows(records), fits(records)
    console.print(Text(title(records), style="bold"), soft_wrap=True)
    print_table(without_empty(_size_columns(rows)), console)
    if lines:
        console.print()
        console.print(Text("time of a call = latency + size / bandwidth", style="bold"))
        print_table(without_empty(_fit_columns(lines)), console)
    for sentence in sentences(records, rows):
        console.print(Text(sentence), soft_wrap=True)


def title(records: Sequence[CommRecord]) -> str:
    """What was measured, and on what."""
    first = max(records, key=lambda record: record.num_devices)
    parts = [first.backend, first.device_names]
    if (first.num_nodes or 1) > 1:
        parts.append(f"{first.num_nodes} machines")
    if first.model:
        parts.append(f"gradient buckets of {first.model}")
    return plain(", ".join(parts))


def sentences(records: Sequence[CommRecord], rows: Sequence[SizeRow]) -> Iterator[str]:
    """What to know about the tables."""
    yield "every result was checked, outside of the timed part, on every rank that has one"
    if max(row.runs for row in rows) < MIN_ROUNDS:
        yield f"no intervals: they need {MIN_ROUNDS} rounds"
    yield from _steps(rows, records[0].model)
    if records[0].device_type == "cpu":
        yield CPU_NOTE


def print_comm_runs(runs: Sequence[CommConfig]) -> None:
    """Print runs in their order."""
    console = open_console()
    first = runs[0].run
    how = f"over {first.backend}: {TIMED_BLOCKS} timed blocks of each size"
    console.print(Text(f"{format_count(len(runs), 'run')} {how}", style="bold"), soft_wrap=True)
    columns = [
        Column("run", [str(each.run.position) for each in runs]),
        Column("round", [str(each.run.round) for each in runs]),
        Column("operation", [each.operation for each in runs], is_number=False),
        Column("devices", [str(each.run.num_devices) for each in runs]),
        Column("sizes", [_sizes(each) for each in runs], is_number=False),
    ]
    print_table(columns, console)
    console.print(
        Text("operations that the backend does not have are left out when it runs"), soft_wrap=True
    )


def _sizes(config: CommConfig) -> str:
    return " ".join(format_binary(size) for size in sorted(config.sizes) if size) or UNKNOWN


def _size_columns(rows: Sequence[SizeRow]) -> list[Column]:
    return [
        *_first_columns(rows),
        Column("size", [format_binary(row.size_bytes) for row in rows]),
        Column(
            "buckets",
            [UNKNOWN if row.buckets is None else str(row.buckets) for row in rows],
            is_optional=True,
        ),
        Column("runs", [str(row.runs) for row in rows]),
        Column("time\nus", [format_microseconds(row.time_s) for row in rows]),
        Column(
            "95 % CI of\nthe time",
            [_interval(row.time_ci, format_microseconds) for row in rows],
            is_optional=True,
        ),
        Column("algbw\nGB/s", [format_bandwidth(row.algorithm_bandwidth) for row in rows]),
        Column("busbw\nGB/s", [format_bandwidth(row.bus_bandwidth) for row in rows]),
        Column(
            "95 % CI of\nthe busbw",
            [_interval(row.bus_bandwidth_ci, format_bandwidth) for row in rows],
            is_optional=True,
        ),
    ]


def _fit_columns(lines: Sequence[Fit]) -> list[Column]:
    return [
        *_first_columns(lines),
        Column("latency\nus", [_microseconds(line.latency_s) for line in lines]),
        Column(
            "95 % CI of\nthe latency",
            [_interval(line.latency_ci, _microseconds) for line in lines],
            is_optional=True,
        ),
        Column("bandwidth\nGB/s", [format_bandwidth(line.bandwidth_bytes_per_s) for line in lines]),
        Column(
            "95 % CI of\nthe bandwidth",
            [_interval(line.bandwidth_ci, format_bandwidth) for line in lines],
            is_optional=True,
        ),
        Column("farthest size\nfrom the line", [format_percent(line.misfit) for line in lines]),
    ]


def _first_columns(rows: Sequence[SizeRow] | Sequence[Fit]) -> list[Column]:
    return [
        Column("operation", [row.operation for row in rows], is_number=False),
        Column("devices", [str(row.num_devices) for row in rows]),
    ]


def _microseconds(seconds: float) -> str:
    """A latency, which a line may put below 0."""
    return f"-{format_microseconds(-seconds)}" if seconds < 0 else format_microseconds(seconds)


def _interval(interval: Interval | None, form: Callable[[float], str]) -> str:
    return UNKNOWN if interval is None else "..".join(map(form, interval))


def _steps(rows: Sequence[SizeRow], model: str) -> Iterator[str]:
    """What the gradients of a step take, one bucket after the other."""
    for count in sorted({row.num_devices for row in rows}):
        own = [
            row
            for row in rows
            if row.operation == "all-reduce" and row.num_devices == count and row.buckets
        ]
        if own:
            total_s = sum((row.buckets or 0) * row.time_s for row in own)
            total_bytes = sum((row.buckets or 0) * (row.size_bytes or 0) for row in own)
            yield plain(
                f"a step of ddp on {count} devices all-reduces the gradients of {model}, "
                f"{format_binary(total_bytes)}: {total_s * 1e3:.4g} ms if nothing else runs; DDP "
                "hides a part of it behind the backward pass"
            )
