"""What a session that was broken off still lacks, and whether this machine may go on with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mgpubench import __version__
from mgpubench.config import RunConfig
from mgpubench.errors import RequestRefused
from mgpubench.plan import Plan
from mgpubench.reader import read_runs
from mgpubench.records import SCHEMA_VERSION, RunRecord, run_id
from mgpubench.request import Request
from mgpubench.results import RUNS_CSV, SESSION_JSON

UNCHANGED = ("machine", "environment", "dataset", "model_facts")
"""Parts of session.json that must be as they were: other runs would not be equal work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedSession:
    """A session as its folder has it."""

    folder: Path
    document: dict[str, Any]
    """session.json."""
    request: Request
    plan: Plan
    finished: tuple[RunRecord, ...]
    """The runs that succeeded, in the order of the file."""
    warnings: tuple[str, ...]
    """About lines of runs.csv that cannot be used; their runs are made again."""

    @property
    def missing(self) -> Plan:
        """The runs that were not made or failed, in their old order."""
        done = {record.run_id for record in self.finished}
        runs = [run for run in self.plan.runs if run_id(self.folder.name, run.position) not in done]
        return replace(self.plan, runs=tuple(runs))


def load_session(folder: Path) -> SavedSession:
    """Read a session folder back.

    Raises:
        RequestRefused: if it is none, or another version of mgpubench wrote it.
    """
    document = _read_document(folder / SESSION_JSON)
    written_by = document.get("mgpubench_version")
    if document.get("schema_version") != SCHEMA_VERSION or written_by != __version__:
        raise RequestRefused(
            f"--resume {folder}: mgpubench {written_by} made this session, and this is "
            f"{__version__}; the rest of it would not be equal work",
            "Resume it with the version that began it, or make a new session.",
        )
    try:
        request = Request(**_with_tuples(document["request"]))
        runs = tuple(RunConfig(**_with_tuples(run)) for run in document["plan"])
        notices = tuple(document["notices"])
    except (KeyError, TypeError) as error:
        raise RequestRefused(
            f"--resume {folder}: {SESSION_JSON} is not as mgpubench writes it ({error})",
            "Was it edited? Make a new session.",
        ) from error
    finished, warnings = _read_finished(folder / RUNS_CSV)
    return SavedSession(
        folder=folder,
        document=document,
        request=request,
        plan=Plan(runs=runs, notices=notices),
        finished=finished,
        warnings=warnings,
    )


def check_unchanged(saved: SavedSession, now: Mapping[str, object]) -> None:
    """Refuse to go on where something that runs must have in common has changed.

    Raises:
        RequestRefused: naming every field that differs, with its old and new value.
    """
    # Through JSON, as the old one went: tuples become lists.
    present = json.loads(json.dumps(now))
    changed = [
        difference
        for part in UNCHANGED
        for difference in _differences(part, saved.document.get(part), present.get(part))
    ]
    if changed:
        raise RequestRefused(
            f"--resume {saved.folder}: this is not as it was when the session began: "
            + "; ".join(changed),
            "Put it back as it was, or make a new session.",
        )


def _differences(name: str, old: object, new: object) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(f"{name}.{key}", old.get(key), new.get(key))
    elif old != new:
        yield f"{name} was {old!r} and is {new!r}"


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no JSON"
        raise RequestRefused(
            f"--resume {path.parent}: {path} cannot be read: {reason}",
            "Give the folder of a session, such as results/20260101T120000Z-abc123.",
        ) from error
    if not isinstance(document, dict):
        raise RequestRefused(f"--resume {path.parent}: {path} is not a session's file")
    return document


def _read_finished(path: Path) -> tuple[tuple[RunRecord, ...], tuple[str, ...]]:
    # A session that was killed as it began has no file yet, or an empty one.
    if not path.exists() or not path.stat().st_size:
        return (), ()
    reading = read_runs(path)
    return tuple(record for record in reading.records if record.is_ok), tuple(reading.warnings)


def _with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _tuples(value) for name, value in values.items()}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
