"""The table of all runs: one row for each, in the order in which they were made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mgpubench.analysis.findings.catalogue import has_table_note
from mgpubench.analysis.metrics import data_wait_share
from mgpubench.format import (
    UNKNOWN,
    format_gibibytes,
    format_milliseconds,
    format_percent,
    format_rate,
    plain,
    shorten,
)
from mgpubench.report.columns import Column, row_label, without_empty
from mgpubench.results.schema import RunRecord

MAX_RUNS = 10_000
"""So many runs are shown, so that the page stays below 5 MB."""

ERROR_CHARACTERS = 200

Cell = Callable[[RunRecord], str]

_TEXT: dict[str, Cell] = {
    "session": lambda run: run.session_id or UNKNOWN,
    "started (UTC)": lambda run: moment(run.started_at),
    "mode": row_label,
    "status": lambda run: run.status,
    "findings": lambda run: _findings(run) or UNKNOWN,
    "error": lambda run: shorten(run.error, ERROR_CHARACTERS) or UNKNOWN,
}

_NUMBERS: dict[str, Cell] = {
    "round": lambda run: _number(run.round),
    "run": lambda run: _number(run.position),
    "devices": lambda run: str(run.num_devices),
    "machines": lambda run: _number(run.num_nodes),
    "samples/s": lambda run: format_rate(run.throughput_samples_per_s),
    "step ms\nmedian": lambda run: format_milliseconds(run.step_time_median_s),
    "step ms\np95": lambda run: format_milliseconds(run.step_time_p95_s),
    "data wait": lambda run: format_percent(data_wait_share(run.data_wait_s, run.window_s)),
    "CPU time\nof others": lambda run: format_percent(run.others_cpu_share),
    "peak GiB": lambda run: _peak(run.peak_memory_bytes),
}

_ORDER = (
    *("session", "run", "round", "started (UTC)", "mode", "devices", "machines", "samples/s"),
    *("step ms\nmedian", "step ms\np95", "data wait", "CPU time\nof others", "peak GiB"),
    *("status", "findings", "error"),
)

_SAID_OF_ALL: dict[str, Callable[[RunRecord], object]] = {
    "session": lambda run: run.session_id,
    "machines": lambda run: run.num_nodes or 1,
}
"""Columns that are left out if all runs have the same."""

_ALWAYS = ("mode", "devices", "samples/s", "status")


def runs_columns(records: Sequence[RunRecord]) -> list[Column]:
    """The columns of the table of all runs; those that say nothing are left out."""
    columns = [
        Column(
            header,
            [(_NUMBERS.get(header) or _TEXT[header])(record) for record in records],
            is_number=header in _NUMBERS,
            is_optional=header not in _ALWAYS,
        )
        for header in _ORDER
        if not _is_alike(header, records)
    ]
    return without_empty(columns)


def in_order(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Runs as they were made: by their start, and then by their place in their session."""
    return sorted(
        records,
        key=lambda run: (run.started_at, run.session_id, run.sitting or 1, run.position or 0),
    )


def shown(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The newest runs, in their order, as many as a page may have."""
    return in_order(records)[-MAX_RUNS:]


def _is_alike(header: str, records: Sequence[RunRecord]) -> bool:
    """True for a column that would say the same of all runs, and is not needed for that."""
    identity = _SAID_OF_ALL.get(header)
    return identity is not None and len({identity(run) for run in records}) < 2


def moment(started_at: str) -> str:
    """`2026-11-30 04:29:24`. Anything else is shown as it is."""
    return plain(started_at).replace("T", " ", 1).removesuffix("+00:00") or UNKNOWN


def _findings(run: RunRecord) -> str:
    """Codes, without those that all rows of a table have alike: the page says them once."""
    return plain(" ".join(code for code in run.finding_codes if not has_table_note(code)))


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _peak(peaks: str) -> str:
    """The highest peak of a device."""
    return format_gibibytes(max(map(int, peaks.split(";")))) if peaks else UNKNOWN
