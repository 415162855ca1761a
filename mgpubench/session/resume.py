"""What a session still lacks, and whether this machine may make the rest of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mgpubench.config.plan import Plan
from mgpubench.errors import RequestRefused
from mgpubench.results.merge import merge
from mgpubench.results.read import read_runs
from mgpubench.results.schema import RunRecord
from mgpubench.results.session_folder import RUNS_CSV
from mgpubench.session.document import SavedSession

DIGESTS = {
    "dataset.digest": "the names or sizes of the images have changed",
    "model_facts.digest": "the layers or the code of the model have changed",
}
"""What a changed digest means. The values themselves say nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How much of a session is done."""

    finished: tuple[RunRecord, ...]
    """The runs that succeeded, in the order of the file."""
    missing: Plan
    """The runs that were not made or failed, in their order."""
    warnings: tuple[str, ...]
    """About lines of runs.csv that cannot be used. Their runs are repeated."""


def read_progress(saved: SavedSession) -> Progress:
    """Find out which runs of a session are done and which are missing.

    Raises:
        ResultsUnreadable: if its runs.csv cannot be read.
    """
    path = saved.folder / RUNS_CSV
    records: list[RunRecord] = []
    warnings: list[str] = []
    # A session that was killed at its start has no file yet, or an empty one.
    if path.exists() and path.stat().st_size:
        reading = merge({path: read_runs(path)})
        records, warnings = reading.records, reading.warnings
    finished = tuple(record for record in records if record.is_ok)
    done = {record.run_id for record in finished}
    missing = [run for run in saved.plan.runs if saved.id_of(run) not in done]
    return Progress(
        finished=finished,
        missing=replace(saved.plan, runs=tuple(missing)),
        warnings=tuple(warnings),
    )


def check_unchanged(saved: SavedSession, now: Mapping[str, object]) -> None:
    """Refuse to resume if something has changed that all runs must have in common.

    `now` holds the parts of session.json to compare, under their names (`system.packages`).

    Raises:
        RequestRefused: naming every field that differs, with its old and new value.
    """
    # Through JSON, like the old values: tuples become lists.
    present = json.loads(json.dumps(now))
    changed = [
        difference
        for part, value in present.items()
        for difference in _differences(part, _look_up(saved.document, part), value)
    ]
    if changed:
        raise RequestRefused(
            f"--resume {saved.folder}: this has changed since the session began: "
            + "; ".join(changed),
            "Change it back, or start a new session.",
        )


def _look_up(document: Mapping[str, object], path: str) -> object:
    value: object = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _differences(name: str, old: object, new: object) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(f"{name}.{key}", old.get(key), new.get(key))
    elif old != new and name in DIGESTS:
        yield DIGESTS[name]
    elif old != new:
        yield f"{name} was {old!r} and is {new!r}"
