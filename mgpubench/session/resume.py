"""What a session that was broken off still lacks, and whether this machine may go on with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mgpubench import __version__
from mgpubench.config.plan import Plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import RunConfig
from mgpubench.errors import RequestRefused
from mgpubench.machine import host
from mgpubench.results.merge import merge
from mgpubench.results.read import read_runs
from mgpubench.results.schema import SCHEMA_VERSION, RunRecord, run_id
from mgpubench.results.session_folder import RUNS_CSV, SESSION_JSON
from mgpubench.session.validate import check_fields, fits

MADE_BY = ("mgpubench_version", "mgpubench_commit", "schema_version")


DIGESTS = {
    "dataset.digest": "the names or sizes of the images have changed",
    "model_facts.digest": "the layers or the code of the model have changed",
}
"""What it means that they differ; their values say nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedSession:
    """What session.json has of a session; nobody writes it again."""

    id: str
    """Of the session, whatever its folder is called by now."""
    folder: Path
    document: dict[str, Any]
    """All of session.json."""
    request: Request
    plan: Plan

    def id_of(self, run: RunConfig) -> str:
        """The run_id of a run of the plan."""
        return run_id(self.id, run.position)


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a session has come."""

    finished: tuple[RunRecord, ...]
    """The runs that succeeded, in the order of the file."""
    missing: Plan
    """The runs that were not made or failed, in their old order."""
    warnings: tuple[str, ...]
    """About lines of runs.csv that cannot be used; their runs are made again."""


def load_session(folder: Path) -> SavedSession:
    """Read session.json back.

    Raises:
        RequestRefused: if there is none, or another version of mgpubench wrote it.
    """
    document = _read_document(folder / SESSION_JSON)
    _check_maker(folder, document)
    try:
        saved = SavedSession(
            id=document["session_id"],
            folder=folder,
            document=document,
            request=Request(**_with_tuples(document["request"])),
            plan=Plan(
                runs=tuple(RunConfig(**_with_tuples(run)) for run in document["plan"]),
                notices=tuple(document["notices"]),
            ),
        )
        _check_values(saved)
    # Whatever may be wrong with a file that somebody has edited.
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RequestRefused(
            f"--resume {folder}: {SESSION_JSON} is not as mgpubench writes it ({error})",
            "Was it edited? Make a new session.",
        ) from error
    return saved


def _check_values(saved: SavedSession) -> None:
    """Refuse what no session of ours can have.

    Raises:
        TypeError, ValueError: naming it.
    """
    if not fits(saved.id, str) or not all(fits(notice, str) for notice in saved.plan.notices):
        raise TypeError("session_id and notices are text")
    check_fields(saved.request)
    for run in saved.plan.runs:
        check_fields(run)
        counts = (run.num_devices, run.world_size, run.batch_per_device, run.steps, run.image_size)
        if min(counts) < 1 or run.timeout_s <= 0:
            raise ValueError(f"run {run.position} has no device, rank, sample, step or time")
    if [run.position for run in saved.plan.runs] != list(range(1, len(saved.plan.runs) + 1)):
        raise ValueError("the positions of the runs are not 1, 2, 3...")
    if not saved.plan.runs:
        raise ValueError("it plans no run")


def _check_maker(folder: Path, document: Mapping[str, Any]) -> None:
    then = tuple(document.get(name) for name in MADE_BY)
    now = (__version__, host.own_commit(), SCHEMA_VERSION)
    if then != now:
        version, commit, schema = then
        raise RequestRefused(
            f"--resume {folder}: mgpubench {version} (commit {commit or 'unknown'}, schema "
            f"{schema}) made this session, and this is {now[0]} (commit {now[1] or 'unknown'}, "
            f"schema {now[2]}); the rest of it would not be equal work",
            "Resume it with the version that began it, or make a new session.",
        )


def read_progress(saved: SavedSession) -> Progress:
    """What has been made of a session and what is missing.

    Raises:
        ResultsUnreadable: if its runs.csv is none.
    """
    path = saved.folder / RUNS_CSV
    records: list[RunRecord] = []
    warnings: list[str] = []
    # A session that was killed as it began has no file yet, or an empty one.
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
    """Refuse to go on where something that runs must have in common has changed.

    `now` has the parts of session.json that are looked at, under their names (`system.packages`).

    Raises:
        RequestRefused: naming every field that differs, with its old and new value.
    """
    # Through JSON, as the old one went: tuples become lists.
    present = json.loads(json.dumps(now))
    changed = [
        difference
        for part, value in present.items()
        for difference in _differences(part, _look_up(saved.document, part), value)
    ]
    if changed:
        raise RequestRefused(
            f"--resume {saved.folder}: this is not as it was when the session began: "
            + "; ".join(changed),
            "Put it back as it was, or make a new session.",
        )


def _look_up(document: Mapping[str, Any], path: str) -> object:
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


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "it is no JSON"
        raise RequestRefused(
            f"--resume {path.parent}: {path} cannot be read: {reason}",
            "Give the folder of a session, such as results/20260101T120000Z-abc123.",
        ) from error
    if not isinstance(document, dict):
        raise RequestRefused(f"--resume {path.parent}: {path} is not a session's file")
    return document


def _with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _tuples(value) for name, value in values.items()}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
