"""What `run` prints: its plan, and at the end the figures of each configuration."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import pandas as pd
from rich.text import Text

from mgpubench.analysis.compare import compare
from mgpubench.analysis.metrics import data_wait_share
from mgpubench.analysis.row import Row
from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import DEFAULT_MARGIN
from mgpubench.format import (
    UNKNOWN,
    format_duration,
    format_gibibytes,
    format_milliseconds,
    format_percent,
    plain,
)
from mgpubench.report.columns import Column, row_label, without_empty
from mgpubench.report.console import open_console
from mgpubench.report.tables import print_comparison, print_table
from mgpubench.results.schema import RunRecord

STEPS_TITLE = "steps (median over the runs) and memory (highest of the runs)"

STEP_FIGURES = ("step_time_median_s", "step_time_p95_s", "step_time_p99_s")


def print_summary(records: Sequence[RunRecord], folder: Path) -> None:
    """Print the comparison of a session's runs, and figures about their steps."""
    console = open_console()
    rows = compare(records, None, DEFAULT_MARGIN)
    print_comparison(rows, console, {record.session_id: folder for record in records})
    console.print()
    console.print(Text(STEPS_TITLE, style="bold"), soft_wrap=True)
    print_table(without_empty(_step_columns(rows, records)), console)


def print_runs(runs: Sequence[RunConfig]) -> None:
    """Print runs in their order."""
    first = runs[0]
    console = open_console()
    title = (
        f"{len(runs)} runs of {first.model}, {first.image_size} px, {first.data}, "
        f"{first.scaling} scaling: {first.warmup_steps} warm-up and {first.steps} measured steps"
    )
    console.print(Text(plain(title), style="bold"), soft_wrap=True)
    print_table(_run_columns(runs), console)


def _run_columns(runs: Sequence[RunConfig]) -> list[Column]:
    return [
        Column("run", [str(run.position) for run in runs]),
        Column("round", [str(run.round) for run in runs]),
        *_variant_column(runs),
        Column("mode", [run.mode for run in runs], is_number=False),
        *_machines_column(runs),
        Column("devices", [str(run.num_devices) for run in runs]),
        Column("batch per\ndevice", [str(run.batch_per_device) for run in runs]),
        Column("global\nbatch", [str(run.global_batch) for run in runs]),
        Column("steps", [str(run.total_steps) for run in runs]),
    ]


def _machines_column(runs: Sequence[RunConfig]) -> list[Column]:
    numbers = [run.num_nodes for run in runs]
    return [Column("machines", list(map(str, numbers)))] if max(numbers) > 1 else []


def _variant_column(runs: Sequence[RunConfig]) -> list[Column]:
    names = [plain(run.variant) for run in runs]
    return [Column("variant", names, is_number=False)] if any(names) else []


def _step_columns(rows: Sequence[Row], records: Sequence[RunRecord]) -> list[Column]:
    medians = _medians(records)
    cells = [medians.get(_key(row), {}) for row in rows]
    return [
        Column("mode", [row_label(row) for row in rows], is_number=False),
        Column("devices", [str(row.num_devices) for row in rows]),
        *(
            Column(header, [format_milliseconds(cell.get(name)) for cell in cells])
            for name, header in zip(
                STEP_FIGURES, ("step ms\nmedian", "step ms\np95", "step ms\np99"), strict=True
            )
        ),
        Column("data wait", [format_percent(cell.get("data_wait_share")) for cell in cells]),
        Column(
            "samples\nper device",
            [_samples(_key(row), records) for row in rows],
            is_optional=True,
        ),
        Column("peak GiB\nper device", [_peaks(_key(row), records) for row in rows]),
        Column(
            "reserved GiB\nper device",
            [_peaks(_key(row), records, "peak_reserved_bytes") for row in rows],
            is_optional=True,
        ),
        Column("GPU use\nper device", [_use(_key(row), records) for row in rows], is_optional=True),
        *_compile_column(rows, records),
    ]


def _compile_column(rows: Sequence[Row], records: Sequence[RunRecord]) -> list[Column]:
    """The longest compile time: later runs find most of the code already compiled."""
    times_s: dict[tuple[object, ...], float] = {}
    for record in records:
        if record.compile_s is not None:
            times_s[_key(record)] = max(record.compile_s, times_s.get(_key(record), 0.0))
    cells = [format_duration(times_s.get(_key(row))) for row in rows]
    return [Column("compile\nlongest", cells)] if times_s else []


def _medians(records: Sequence[RunRecord]) -> dict[tuple[object, ...], dict[str, float]]:
    """The median over the ok runs of each configuration, without figures that no run has."""
    table = pd.DataFrame(
        {
            "configuration": _key(record),
            "data_wait_share": data_wait_share(record.data_wait_s, record.window_s),
            **{name: getattr(record, name) for name in STEP_FIGURES},
        }
        for record in records
        if record.is_ok
    )
    medians = table.astype(dict.fromkeys(table.columns[1:], float))
    medians = medians.groupby("configuration").median()
    return {key: row.dropna().to_dict() for key, row in medians.iterrows()}


def _samples(key: tuple[object, ...], records: Sequence[RunRecord]) -> str:
    """The samples of one device in a window. All devices take as many."""
    known = [
        record.samples // record.num_devices
        for record in records
        if record.is_ok and _key(record) == key and record.samples is not None
    ]
    return str(known[0]) if known else UNKNOWN


def _peaks(
    key: tuple[object, ...], records: Sequence[RunRecord], column: str = "peak_memory_bytes"
) -> str:
    """The highest peak of each device over the runs. DataParallel uses the first one more."""
    peaks = [
        [int(peak) for peak in getattr(record, column).split(";")]
        for record in records
        if record.is_ok and _key(record) == key and getattr(record, column)
    ]
    devices = zip_longest(*peaks, fillvalue=0)
    return " ".join(format_gibibytes(max(device)) for device in devices) or UNKNOWN


def _use(key: tuple[object, ...], records: Sequence[RunRecord]) -> str:
    """The mean use of each device over the runs. DataParallel uses the first one more."""
    shares = [
        [float(share) if share else None for share in record.gpu_utilization_per_device.split(";")]
        for record in records
        if record.is_ok and _key(record) == key and record.gpu_utilization_per_device
    ]
    devices = ([share for share in device if share is not None] for device in zip_longest(*shares))
    means = [sum(known) / len(known) if known else None for known in devices]
    return " ".join(UNKNOWN if mean is None else f"{mean:.0%}" for mean in means) or UNKNOWN


def _key(run: Row | RunRecord) -> tuple[object, ...]:
    devices = (run.num_devices, run.num_nodes or 1)
    return run.variant, run.mode, run.effective_mode, devices, run.options
