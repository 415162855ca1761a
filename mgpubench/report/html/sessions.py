"""The sessions behind a page: machine, versions, how they differ, and how to repeat them."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgpubench.format import UNKNOWN, plain, shell_path
from mgpubench.report.columns import Column
from mgpubench.report.commands import Folders
from mgpubench.report.html.facts import Facts, alike, differing, facts_of
from mgpubench.report.html.runs_table import moment
from mgpubench.results.saved_document import list_at, names_at, read_document
from mgpubench.results.schema import RunRecord

MAX_SESSIONS = 200
MAX_COMMANDS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionPart:
    """One session: its runs, what is known about its machine, and the command that made it."""

    id: str
    records: list[RunRecord]
    facts: Facts
    command: str
    """Empty if session.json does not say."""

    @property
    def started_at(self) -> str:
        """When its first run started."""
        return min(record.started_at for record in self.records)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sessions:
    """All sessions of a page, the oldest first."""

    parts: list[SessionPart]

    @property
    def common(self) -> Facts:
        """What all sessions have in common; everything about a single one."""
        only = self.parts[0] if len(self.parts) == 1 else None
        about = {"session": only.id, "first run (UTC)": moment(only.started_at)} if only else {}
        return {**about, **alike([part.facts for part in self.parts])}

    @property
    def columns(self) -> list[Column]:
        """A table with a row for each of the newest sessions, and a column for each difference."""
        parts = self.parts[-MAX_SESSIONS:]
        return [
            Column("session", [part.id or UNKNOWN for part in parts], is_number=False),
            Column("first run (UTC)", [moment(part.started_at) for part in parts], is_number=False),
            Column("runs", [_runs(part) for part in parts]),
            *(
                Column(name, [part.facts.get(name, UNKNOWN) for part in parts], is_number=False)
                for name in self.differences
            ),
        ]

    @property
    def differences(self) -> list[str]:
        """The facts in which they differ."""
        return differing([part.facts for part in self.parts])

    @property
    def left_out(self) -> int:
        """Sessions that have no row in that table."""
        return max(0, len(self.parts) - MAX_SESSIONS)

    @property
    def commands(self) -> list[str]:
        """The commands that made them, each once, the newest last."""
        return list(dict.fromkeys(part.command for part in self.parts if part.command))


def sessions_of(records: Sequence[RunRecord], folders: Folders) -> Sessions:
    """The sessions of some runs, with what their session.json adds."""
    by_session: defaultdict[str, list[RunRecord]] = defaultdict(list)
    for record in records:
        by_session[record.session_id].append(record)
    parts = [_part(name, runs, folders.get(name)) for name, runs in by_session.items()]
    return Sessions(parts=sorted(parts, key=lambda part: (part.started_at, part.id)))


def commands_to_see(paths: Sequence[Path]) -> Iterator[str]:
    """The commands that show the same results again."""
    places = "".join(f" {shell_path(path)}" for path in paths)
    yield f"mgpubench compare{places}"
    yield f"mgpubench report{places}"


def _part(session_id: str, records: list[RunRecord], folder: Path | None) -> SessionPart:
    document: Mapping[str, Any] = read_document(folder, session_id) if folder else {}
    return SessionPart(
        id=session_id,
        records=records,
        facts=facts_of(records, document),
        command=_command(document),
    )


def _command(document: Mapping[str, Any]) -> str:
    """The command line of a session, with the recorded variables in front of it."""
    words = list_at(document, "argv")
    if not words:
        return ""
    variables = dict(names_at(document, "environment"))
    visible = names_at(document, "machine").get("cuda_visible_devices")
    if visible is not None:
        variables["CUDA_VISIBLE_DEVICES"] = visible
    settings = [f"{name}={shlex.quote(str(value))}" for name, value in variables.items()]
    return plain(" ".join([*settings, "mgpubench", *(shlex.quote(str(word)) for word in words)]))


def _runs(part: SessionPart) -> str:
    ok = sum(record.is_ok for record in part.records)
    failed = len(part.records) - ok
    return f"{ok}, {failed} not ok" if failed else str(ok)
