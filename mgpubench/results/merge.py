"""Every run once, even if it was tried several times, or copied with its session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpubench.format import format_count
from mgpubench.results.schema import RunRecord


@dataclass(frozen=True, slots=True)
class Reading:
    """The runs that were read, and a line about everything that was left out."""

    records: list[RunRecord]
    warnings: list[str]


def merge(readings: Mapping[Path, Reading], warnings: Sequence[str] = ()) -> Reading:
    """All runs, each once, and all warnings.

    A copied session or line would count twice. Failures of a run that was repeated by `--resume`
    are left out. If ok runs have the same run_id and different figures, none of them is used, since
    it is unknown which is right.
    """
    chosen = _choose([record for reading in readings.values() for record in reading.records])
    records: list[RunRecord] = []
    messages = list(warnings)
    taken: dict[str, Path] = {}
    for path, reading in readings.items():
        messages += reading.warnings
        left_out: Counter[str] = Counter()
        for record in reading.records:
            fate = _fate(record, chosen, taken, path)
            left_out[fate] += 1
            if fate == _USED:
                taken[record.run_id] = path
                records.append(record)
        of_all = f"of {format_count(len(reading.records), 'run')}"
        messages += [
            f"{path}: left out {left_out[fate]} {of_all}, {text}"
            for fate, text in _LEFT_OUT.items()
            if left_out[fate]
        ]
    return Reading(records, messages)


_USED, _REPLACED, _REPEATED, _KNOWN = "used", "replaced", "repeated", "known"
_LEFT_OUT = {
    _REPEATED: "which repeat or contradict another run of the same run_id",
    _KNOWN: "whose run_id was already read from another file",
}


def _choose(records: Sequence[RunRecord]) -> dict[str, RunRecord | None]:
    """The record to use for each run_id: the one with figures, or else the last failure."""
    attempts: dict[str, list[RunRecord]] = {}
    for record in records:
        attempts.setdefault(record.run_id, []).append(record)
    chosen: dict[str, RunRecord | None] = {}
    for run_id, of_one_run in attempts.items():
        measured = {record for record in of_one_run if record.is_ok} or {of_one_run[-1]}
        chosen[run_id] = measured.pop() if len(measured) == 1 else None
    return chosen


def _fate(
    record: RunRecord,
    chosen: Mapping[str, RunRecord | None],
    taken: Mapping[str, Path],
    path: Path,
) -> str:
    if not record.run_id:
        return _USED  # runs without an id cannot be told apart
    choice = chosen[record.run_id]
    if not record.is_ok and record != choice:
        return _REPLACED
    if record != choice:
        return _REPEATED
    if record.run_id not in taken:
        return _USED
    return _REPEATED if taken[record.run_id] == path else _KNOWN
