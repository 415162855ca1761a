"""What `compare --before ... --after ...` and `--fail-if-slower` say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby

from mgpubench.analysis.before_after import BeforeAfter, Change, ChangedRow, Key
from mgpubench.analysis.gate import Gate
from mgpubench.analysis.row import Row
from mgpubench.analysis.stats import MIN_SESSIONS, Interval
from mgpubench.format import (
    UNKNOWN,
    format_confidence,
    format_count,
    format_interval,
    format_rate,
    format_ratio,
    plain,
)
from mgpubench.report.columns import Column, row_place
from mgpubench.report.sections import Section
from mgpubench.results.csv_format import format_cell

SPEEDUP_NOTE = (
    "the ratio to single is not moved by a faster machine, and is blind to what slows single alike"
)


def describe_changes(result: BeforeAfter) -> Section:
    """A table with a row for each configuration, and what it says."""
    rows = result.rows
    columns = [
        Column("mode", [_label(row) for row in rows], is_number=False),
        Column("devices", [str(row.num_devices) for row in rows]),
        Column("sessions\nbefore, after", [_sessions(row.throughput) for row in rows]),
        Column("before\nsamples/s", [format_rate(row.before_samples_per_s) for row in rows]),
        Column("after\nsamples/s", [format_rate(row.after_samples_per_s) for row in rows]),
        *_change_columns("after / before", [row.throughput for row in rows]),
        *_change_columns("the same of\nspeed-up", [row.speedup for row in rows]),
    ]
    return Section("after against before", columns, list(_sentences(result)))


def changes_to_json(result: BeforeAfter) -> str:
    """The rows and the differences, for programs."""
    differences = {
        name: [None if value == "" else value for value in values]
        for name, values in result.differences.items()
    }
    alone = {
        name: [key._asdict() for key in getattr(result, name)]
        for name in ("only_before", "only_after")
    }
    document = {**asdict(result), "differences": differences, **alone}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def change_place(row: ChangedRow | Key) -> str:
    """A row as sentences name it: `ddp on 2 devices`."""
    return f"{_label(row)} on {format_count(row.num_devices, 'device')}"


def gate_rows(rows: Sequence[Row]) -> Iterator[tuple[str, Interval | None]]:
    """What a gate looks at: None for what could not be compared, which must not let it pass."""
    for _, members in groupby(rows, key=lambda row: row.group):
        table = list(members)
        entries: list[tuple[str, Interval | None]] = []
        for row in table:
            versus = row.versus_baseline
            if not row.runs:  # also a baseline, without which others have nothing to compare with
                entries.append((f"{row_place(row)}, of which no run succeeded", None))
            elif versus and versus.is_judged:
                entries.append((f"{row_place(row)} against {versus.baseline}", versus.interval))
        yield from entries or [(f"{row_place(table[0])}, with nothing to compare with", None)]


def describe_gate(gate: Gate) -> list[str]:
    """A sentence for each ratio at a gate, and the result."""
    least = f"{(1 - gate.allowed):.4g}"
    sentences = [
        f"gate {gate.allowed * 100:g} %: {plain(each.name)}: {each.result}, "
        + {
            "tripped": f"the whole interval {format_interval(each.interval)} is below {least}",
            "passed": f"the whole interval {format_interval(each.interval)} is above {least}",
            "undecided": f"the interval {format_interval(each.interval)} contains {least}"
            if each.interval
            else "there is no interval",
        }[each.result]
        for each in gate.checked
    ]
    return [*sentences, f"gate {gate.allowed * 100:g} %: {gate.result}"]


def _label(row: ChangedRow | Key) -> str:
    parts = [row.mode, row.variant or row.options.replace(";", " ")]
    if row.effective_mode not in ("", row.mode):
        parts.insert(1, f"({row.effective_mode})")
    return plain(" ".join(part for part in parts if part))


def _sessions(change: Change) -> str:
    return f"{change.sessions[0]}, {change.sessions[1]}"


def _change_columns(header: str, changes: Sequence[Change | None]) -> list[Column]:
    known = [change for change in changes if change]
    if not known:
        return []
    confidence = next((each.confidence for each in known if each.confidence), 0.95)
    return [
        Column(header, [format_ratio(each.ratio if each else None) for each in changes]),
        Column(
            f"{format_confidence(confidence)} CI",
            [format_interval(each.interval if each else None) for each in changes],
        ),
        Column(
            "verdict",
            [(each.verdict if each else None) or UNKNOWN for each in changes],
            is_number=False,
        ),
    ]


def _sentences(result: BeforeAfter) -> Iterator[str]:
    fewest = min(min(row.throughput.sessions) for row in result.rows)
    if fewest < MIN_SESSIONS:
        yield (
            f"no verdict with {format_count(fewest, 'session')} on a side: the machine itself "
            f"changes between sessions, so {MIN_SESSIONS} on each side are needed"
        )
    for side, keys in (("before", result.only_before), ("after", result.only_after)):
        if keys:
            yield f"only {side} the change, so not compared: {', '.join(map(change_place, keys))}"
    if any(row.speedup for row in result.rows):
        yield SPEEDUP_NOTE
    for name, (before, after) in result.differences.items():
        old, new = (format_cell(value) or UNKNOWN for value in (before, after))
        yield plain(f"{name} differs: {old} before, {new} after")
    if result.device_type == "cpu":
        yield "CPU rows are smoke tests of the tool, not a forecast for GPUs."
