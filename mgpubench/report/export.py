"""The table of compare for programs: JSON and CSV. Unknown is null, or an empty cell."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mgpubench.analysis.compare import Row
from mgpubench.analysis.groups import GROUP_KEY
from mgpubench.results.session_folder import write_rows

Place = tuple[str | int, ...]
"""Where a value is found in a row: names of attributes, and places in an interval."""


def to_json(rows: Sequence[Row]) -> str:
    """A list with one object for each row."""
    objects = [_row_object(row) for row in rows]
    return json.dumps(objects, indent=2, ensure_ascii=False, allow_nan=False)


def to_csv(rows: Sequence[Row]) -> str:
    """The same fields side by side, under one header."""
    buffer = io.StringIO()
    write_rows(buffer, [CSV_PLACES])
    write_rows(buffer, ([_find(row, place) for place in CSV_PLACES.values()] for row in rows))
    return buffer.getvalue()


def _row_object(row: Row) -> dict[str, object]:
    document = asdict(row)
    del document["finding_runs"]  # for people; the fields of JSON are a contract
    for versus in (document["versus_baseline"], document["versus_dp"]):
        if versus is not None:
            del versus["margin"]
    document["group"] = {name: _or_null(value) for name, value in document["group"].items()}
    document["effective_mode"] = _or_null(row.effective_mode)
    return document


def _or_null(value: object) -> object:
    return None if value == "" else value


def _find(row: Row, place: Place) -> object:
    value: Any = row
    for step in place:
        if value is None:
            return None
        value = value[step] if isinstance(step, int) else getattr(value, step)
    return ";".join(value) if isinstance(value, tuple) else value


def _same(*names: str) -> dict[str, Place]:
    return {name: (name,) for name in names}


def _bounds(column: str, *path: str) -> dict[str, Place]:
    return {f"{column}_low": (*path, 0), f"{column}_high": (*path, 1)}


def _versus(prefix: str, attribute: str) -> dict[str, Place]:
    return {
        f"{prefix}_ratio": (attribute, "ratio"),
        **_bounds(f"{prefix}_ratio_ci", attribute, "ratio_ci"),
        **{
            f"{prefix}_{name}": (attribute, name)
            for name in ("pairs", "paired", "verdict", "rounds_needed")
        },
    }


CSV_PLACES: dict[str, Place] = {
    **{f"group_{name}": ("group", name) for name in GROUP_KEY},
    **_same("mode", "effective_mode", "num_devices", "options", "runs", "failed", "interrupted"),
    **_same("throughput_samples_per_s"),
    **_bounds("throughput_ci", "throughput_ci"),
    **_same("speedup"),
    **_bounds("speedup_ci", "speedup_ci"),
    **_same("scaling_efficiency", "findings"),
    "versus_baseline": ("versus_baseline", "baseline"),
    **_versus("versus", "versus_baseline"),
    **_versus("versus_dp", "versus_dp"),
}
"""The columns in their order, and where each has its value."""
