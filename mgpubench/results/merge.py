"""Every run once, even if it was tried several times, or copied with its session."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mgpubench.format import format_count
from mgpubench.results.schema import RunRecord


@dataclass(frozen=True, slots=True)
class Reading:
    """The runs that were read, and a line about everything that was left out."""

    records: list[RunRecord]
    warnings: list[str]
    folders: dict[str, Path] = field(default_factory=dict)
    """The folder of each session."""


def merge(readings: Mapping[Path, Reading], warnings: Sequence[str] = ()) -> Reading:
    """All runs, each once, and all warnings.

    A copied session or line would count twice. If ok runs have the same run_id and different
    figures, none of them is used, since it is unknown which is right. Of a round that was repeated
    by `--resume`, the best sitting counts. Failed attempts stay, also if the run succeeded later.
    """
    chosen = _choose([record for reading in readings.values() for record in reading.records])
    records: list[RunRecord] = []
    messages = list(warnings)
    taken: dict[str, Path] = {}
    folders: dict[str, Path] = {}
    for path, reading in readings.items():
        messages += reading.warnings
        left_out: Counter[str] = Counter()
        for record in reading.records:
            fate = _fate(record, chosen, taken, path)
            left_out[fate] += 1
            if fate == _USED:
                taken[record.run_id] = path
                folders.setdefault(record.session_id, path.parent)
                records.append(record)
        of_all = f"of {format_count(len(reading.records), 'run')}"
        messages += [
            f"{path}: left out {left_out[fate]} {of_all}, {text}"
            for fate, text in _LEFT_OUT.items()
            if left_out[fate]
        ]
    return Reading(best_sittings(records), messages, folders)


_USED, _REPLACED, _REPEATED, _KNOWN = "used", "replaced", "repeated", "known"
_LEFT_OUT = {
    _REPEATED: "which repeat or contradict another run of the same run_id",
    _KNOWN: "whose run_id was already read from another file",
}


def best_sittings(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs that count, and all failed attempts.

    Two runs are a pair only if they were made in one sitting. So of each round the sitting with
    most ok runs counts, and the later one on a tie. A run that is ok only in another sitting is
    used from there, without a pair. Interrupted attempts of a run that succeeded are left out.
    """
    best = _best_sitting_of_rounds(records)
    by_run: defaultdict[tuple[str, int | None], list[RunRecord]] = defaultdict(list)
    for record in records:
        by_run[record.session_id, record.position].append(record)
    used: set[int] = set()
    for (session, position), attempts in by_run.items():
        counting: Sequence[RunRecord] = attempts
        if session and position is not None:
            counting = _that_count(attempts, best.get((session, attempts[0].round)))
        used.update(map(id, counting))
    return [record for record in records if id(record) in used]


def _best_sitting_of_rounds(
    records: Iterable[RunRecord],
) -> dict[tuple[str, int | None], int]:
    ok_runs: Counter[tuple[str, int | None, int]] = Counter()
    for record in records:
        if record.is_ok:
            ok_runs[record.session_id, record.round, record.sitting or 1] += 1
    best: dict[tuple[str, int | None], tuple[int, int]] = {}
    for (session, round_, sitting), count in ok_runs.items():
        key = (session, round_)
        best[key] = max(best.get(key, (0, 0)), (count, sitting))
    return {key: sitting for key, (_, sitting) in best.items()}


def _that_count(attempts: Sequence[RunRecord], best: int | None) -> list[RunRecord]:
    ok = [attempt for attempt in attempts if attempt.is_ok]
    if not ok:
        return list(attempts)
    sittings = {attempt.sitting or 1 for attempt in ok}
    sitting = best if best in sittings else max(sittings)
    return [
        attempt
        for attempt in attempts
        if attempt.status == "failed" or (attempt.is_ok and (attempt.sitting or 1) == sitting)
    ]


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
        return _USED  # runs without an id cannot be distinguished
    choice = chosen[record.run_id]
    if not record.is_ok and record != choice:
        return _REPLACED
    if record != choice:
        return _REPEATED
    if record.run_id not in taken:
        return _USED
    return _REPEATED if taken[record.run_id] == path else _KNOWN
