"""What a session still lacks, and whether this machine may make the rest of it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mgpubench.config.nodes import Nodes
from mgpubench.config.plan import Plan
from mgpubench.config.run_config import RunConfig
from mgpubench.errors import RequestRefused
from mgpubench.format import format_count, shell_path
from mgpubench.results.merge import merge
from mgpubench.results.read import read_runs
from mgpubench.results.schema import RunRecord
from mgpubench.results.session_folder import RUNS_CSV
from mgpubench.session.document import SavedSession, differences, load_session

MEANINGS = {
    "datasets": "the names or sizes of the images have changed",
    "evaluation": "the names or sizes of the images of --eval-data have changed",
    "models": "the layers or the code of the model have changed",
}
"""What a changed digest in a part of session.json means. The values themselves say nothing."""


FOLDERS = {"datasets": "the folder", "evaluation": "the folder of --eval-data"}
"""What parts of session.json are about folders of images."""

COUNTED = {"samples": "image", "classes": "class folder"}
"""What is counted in such a folder, by the name of the count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resume:
    """How a session is resumed."""

    folder: Path
    timeout_s: float | None = None
    """Time limit for the runs to come, unless it is None."""
    only_missing: bool = False
    """Make the missing runs alone, and not the whole of their rounds."""
    rounds: int | None = None
    """Add rounds up to this number."""
    until: str = ""
    """Add rounds until this is reached."""
    max_rounds: int | None = None
    duration_s: float | None = None
    """Add rounds until so many seconds are over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How much of a session is done."""

    records: tuple[RunRecord, ...]
    """All rows of runs.csv that can be used."""
    plan: Plan
    """The plan of the session, with all rounds that were added."""
    warnings: tuple[str, ...]
    """About lines of runs.csv that cannot be used. Their runs are repeated."""

    @property
    def sitting(self) -> int:
        """The number of the next sitting."""
        return 1 + max((record.sitting or 1 for record in self.records), default=1)

    @property
    def finished_ids(self) -> set[str]:
        """The run_ids that have figures."""
        return {record.run_id for record in self.records if record.is_ok}

    def missing(self, plan: Plan) -> list[RunConfig]:
        """The runs of a plan that have no figures."""
        done = {record.position for record in self.records if record.is_ok}
        return [run for run in plan.runs if run.position not in done]

    def missing_rounds(self, plan: Plan) -> list[RunConfig]:
        """All runs of the rounds of a plan that were never complete within one sitting."""
        sittings: defaultdict[tuple[int | None, int], set[int | None]] = defaultdict(set)
        for record in self.records:
            if record.is_ok:
                sittings[record.round, record.sitting or 1].add(record.position)
        complete = {
            number
            for (number, _), positions in sittings.items()
            if len(positions) == plan.num_configurations
        }
        return [run for run in plan.runs if run.round not in complete]

    def repeated(self, runs: Sequence[RunConfig]) -> Iterator[str]:
        """What to say about rounds that are made again although some of their runs are there."""
        done = {record.position for record in self.records if record.is_ok}
        rounds = sorted({run.round for run in runs if run.position in done})
        if rounds:
            count = format_count(sum(run.round in rounds for run in runs), "run")
            names = ", ".join(map(str, rounds))
            yield (
                f"round {names}: all {count} are repeated, since only runs of one call are "
                "paired (--resume-only-missing makes the missing ones, without pairs)"
            )


def read_progress(saved: SavedSession) -> Progress:
    """Find out how much of a session is done.

    Raises:
        ResultsUnreadable: if its runs.csv cannot be read.
    """
    records, warnings = _read_records(saved.folder / RUNS_CSV)
    plan = saved.plan
    rounds = max((record.round or 0 for record in records if _is_in_order(record, plan)), default=0)
    return Progress(
        records=tuple(records),
        plan=plan.with_rounds(rounds) if rounds > plan.rounds else plan,
        warnings=tuple(warnings),
    )


def runs_to_make(progress: Progress, resume: Resume) -> tuple[Plan, list[RunConfig]]:
    """The plan of a resumed session, with added rounds, and its runs that are to be made now."""
    plan = progress.plan
    if resume.rounds is not None and resume.rounds > plan.rounds:
        plan = plan.with_rounds(resume.rounds)
    if resume.timeout_s is not None:
        runs = tuple(replace(run, timeout_s=resume.timeout_s) for run in plan.runs)
        plan = replace(plan, runs=runs)
    return plan, progress.missing(plan) if resume.only_missing else progress.missing_rounds(plan)


def _read_records(path: Path) -> tuple[list[RunRecord], list[str]]:
    """The rows of a session so far, and warnings about those that cannot be used."""
    # A session that was killed at its start has no file yet, or an empty one.
    if not path.exists() or not path.stat().st_size:
        return [], []
    reading = read_runs(path)
    return reading.records, merge({path: reading}).warnings


def _is_in_order(record: RunRecord, plan: Plan) -> bool:
    """False if the round of a row was edited: it does not fit the row's position."""
    position = record.position or 0
    return record.round == (position - 1) // plan.num_configurations + 1


def check_unchanged(saved: SavedSession, now: Mapping[str, object]) -> None:
    """Refuse to resume if something has changed that all runs must have in common.

    `now` holds the parts of session.json to compare, under their names (`system.packages`).

    Raises:
        RequestRefused: naming every field that differs, with its old and new value.
    """
    # Through JSON, like the old values: tuples become lists.
    present = json.loads(json.dumps(now))
    changed = [
        _described(*difference, present)
        for part, value in present.items()
        for difference in differences(part, _look_up(saved.document, part), value)
    ]
    if changed:
        raise RequestRefused(
            f"--resume {saved.folder}: this has changed since the session began: "
            + "; ".join(changed),
            "Change it back, or start a new session.",
        )


def check_nodes(saved: SavedSession, nodes: Nodes | None) -> None:
    """Refuse to resume a session on another number of machines.

    Raises:
        RequestRefused: naming both numbers.
    """
    then, now = len(saved.document.get("nodes", [])) or 1, nodes.num_nodes if nodes else 1
    if then != now:
        raise RequestRefused(
            f"--resume {saved.folder}: the session was made on {format_count(then, 'machine')}, "
            f"and this is {now}",
            f"Give --nnodes {then}, --node-rank and --rdzv-endpoint on each machine."
            if then > 1
            else "Leave --nnodes out.",
        )


def load_runs(folder: Path) -> SavedSession:
    """Read back a session of `mgpubench run`.

    Raises:
        RequestRefused: if the folder has no session that can be resumed, or has a training.
    """
    saved = load_session(folder)
    if saved.is_training:
        raise RequestRefused(
            f"--resume {folder} is a training, and not a session of mgpubench run",
            f"Go on with it: mgpubench train --resume {shell_path(folder)}",
        )
    return saved


def _look_up(document: Mapping[str, object], path: str) -> object:
    value: object = document
    for name in path.split("."):
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _described(name: str, old: object, new: object, present: Mapping[str, object]) -> str:
    part, _, field = re.sub(r"\[(\d+)\]", r".\1", name).rpartition(".")
    top = part.partition(".")[0]
    if field == "digest":
        return MEANINGS[top]
    if top in FOLDERS and field in COUNTED and isinstance(old, int):
        folder = f"{FOLDERS[top]} {_look_up(present, f'{part}.name')}"
        return f"{folder} had {format_count(old, COUNTED[field])} and has {new}"
    if top in FOLDERS and field == "name":
        return f"{FOLDERS[top]} was {old} and is {new}"
    return f"{name} was {old!r} and is {new!r}"
