"""The table of compare for programs: JSON and CSV. Unknown is null, or an empty cell."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from mgpubench.analysis.groups import GROUP_KEY
from mgpubench.analysis.row import Row, Versus
from mgpubench.analysis.stats import Interval
from mgpubench.results.csv_format import write_rows

BEHIND_RATIO = (
    *("confidence", "method", "sessions", "disagree", "pairs", "paired"),
    *("verdict", "rounds_needed"),
)
"""The columns after a ratio and its interval, by their names in the JSON of a comparison."""


def to_json(rows: Sequence[Row]) -> str:
    """A list with one object for each row."""
    objects = [_row_object(row) for row in rows]
    return json.dumps(objects, indent=2, ensure_ascii=False, allow_nan=False)


def to_csv(rows: Sequence[Row]) -> str:
    """The same fields side by side, under one header."""
    buffer = io.StringIO()
    write_rows(buffer, [CSV_COLUMNS])
    write_rows(buffer, ([value(row) for value in CSV_COLUMNS.values()] for row in rows))
    return buffer.getvalue()


def _row_object(row: Row) -> dict[str, object]:
    group = {name: or_null(value) for name, value in asdict(row.group).items()}
    return {
        "group": group,
        "variant": or_null(row.variant),
        "mode": row.mode,
        "effective_mode": or_null(row.effective_mode),
        "num_devices": row.num_devices,
        "options": row.options,
        "runs": row.runs,
        "failed": row.failed,
        "interrupted": row.interrupted,
        "throughput_samples_per_s": row.throughput_samples_per_s,
        "throughput_ci": row.throughput_ci,
        "speedup": row.speedup,
        "speedup_ci": row.speedup_ci,
        "scaling_efficiency": row.scaling_efficiency,
        "findings": row.findings,
        "versus_baseline": _versus_object(row.versus_baseline),
        "versus_dp": _versus_object(row.versus_dp),
        "num_nodes": row.num_nodes,
        "node_efficiency": row.node_efficiency,
        "samples_per_joule": row.samples_per_joule,
        "cost_per_million_samples": row.cost_per_million_samples,
    }


def _versus_object(versus: Versus | None) -> dict[str, object] | None:
    if versus is None:
        return None
    return {
        "baseline": or_null(versus.baseline),
        "ratio": versus.ratio,
        "ratio_ci": versus.interval,
        "confidence": versus.comparison.confidence if versus.comparison else None,
        "method": versus.comparison.method if versus.comparison else None,
        "sessions": len(versus.comparison.session_ratios) if versus.comparison else 0,
        "disagree": versus.comparison.disagree if versus.comparison else False,
        "pairs": versus.comparison.pairs if versus.comparison else 0,
        "paired": versus.comparison.paired if versus.comparison else None,
        "verdict": versus.verdict,
        "rounds_needed": versus.rounds_needed,
    }


def or_null(value: object) -> object:
    """The value; None for a text that is empty, which means unknown."""
    return None if value == "" else value


Value = Callable[[Row], Any]


def _group_value(name: str) -> Value:
    return lambda row: getattr(row.group, name)


def _bound(interval: Interval | None, place: int) -> float | None:
    return None if interval is None else interval[place]


def _versus_columns(prefix: str, versus_of: Callable[[Row], Versus | None]) -> dict[str, Value]:
    """The columns of one comparison; empty for rows that have none."""

    def value(name: str) -> Value:
        return lambda row: (_versus_object(versus_of(row)) or {}).get(name)

    def bound(place: int) -> Value:
        return lambda row: _bound(versus.interval if (versus := versus_of(row)) else None, place)

    return {
        f"{prefix}_ratio": value("ratio"),
        f"{prefix}_ratio_ci_low": bound(0),
        f"{prefix}_ratio_ci_high": bound(1),
        **{f"{prefix}_{name}": value(name) for name in BEHIND_RATIO},
    }


CSV_COLUMNS: dict[str, Value] = {
    **{f"group_{name}": _group_value(name) for name in GROUP_KEY},
    "variant": lambda row: row.variant,
    "mode": lambda row: row.mode,
    "effective_mode": lambda row: row.effective_mode,
    "num_devices": lambda row: row.num_devices,
    "options": lambda row: row.options,
    "runs": lambda row: row.runs,
    "failed": lambda row: row.failed,
    "interrupted": lambda row: row.interrupted,
    "throughput_samples_per_s": lambda row: row.throughput_samples_per_s,
    "throughput_ci_low": lambda row: _bound(row.throughput_ci, 0),
    "throughput_ci_high": lambda row: _bound(row.throughput_ci, 1),
    "speedup": lambda row: row.speedup,
    "speedup_ci_low": lambda row: _bound(row.speedup_ci, 0),
    "speedup_ci_high": lambda row: _bound(row.speedup_ci, 1),
    "scaling_efficiency": lambda row: row.scaling_efficiency,
    "findings": lambda row: ";".join(row.findings),
    "versus_baseline": lambda row: row.versus_baseline.baseline if row.versus_baseline else None,
    **_versus_columns("versus", lambda row: row.versus_baseline),
    **_versus_columns("versus_dp", lambda row: row.versus_dp),
    "num_nodes": lambda row: row.num_nodes,
    "node_efficiency": lambda row: row.node_efficiency,
    "samples_per_joule": lambda row: row.samples_per_joule,
    "cost_per_million_samples": lambda row: row.cost_per_million_samples,
}
"""The columns in their order, and the value of each in a row."""
