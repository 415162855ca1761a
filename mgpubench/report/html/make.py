"""From runs to the page about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mgpubench.analysis.compare import compare
from mgpubench.analysis.row import Baseline, Row
from mgpubench.format import format_count
from mgpubench.report.commands import command_to_run
from mgpubench.report.html.answer import answers_of, caveats_of, headline
from mgpubench.report.html.findings import explain
from mgpubench.report.html.method import meanings_of, method_of, modes_of
from mgpubench.report.html.page import Page
from mgpubench.report.html.pictures import pictures_of
from mgpubench.report.html.runs_table import runs_columns, shown
from mgpubench.report.html.sessions import MAX_COMMANDS, Sessions, commands_to_see, sessions_of
from mgpubench.report.sections import describe
from mgpubench.results.merge import Reading
from mgpubench.results.schema import RunRecord

MAX_ANSWERS = 6
MAX_WORKS = 6
MAX_LINES = 50
"""Of what could not be read."""


def make_page(
    reading: Reading, baseline: Baseline | None, margin: float, paths: Sequence[Path]
) -> Page:
    """The page about some runs. `paths` are those that were read, for the commands to see them."""
    rows = compare(reading.records, baseline, margin)
    sections = describe(rows, reading.folders)
    works = [section.title for section in sections]
    answers = answers_of(rows, works, reading.folders)
    sessions = sessions_of(reading.records, reading.folders)
    made_by = sessions.commands[-MAX_COMMANDS:]
    listed = shown(reading.records)
    pictures, no_pictures = pictures_of(rows, reading)
    return Page(
        title=_title(works),
        subtitle=_subtitle(reading.records, sessions),
        headline=headline(answers),
        answers=answers[:MAX_ANSWERS],
        more_answers=len(answers[MAX_ANSWERS:]),
        caveats=caveats_of(rows),
        modes=modes_of(rows),
        works=works[:MAX_WORKS],
        more_works=len(works[MAX_WORKS:]),
        versions=_versions(sessions),
        repeat=made_by[-1] if made_by else command_to_run(_of_first_group(rows)),
        sections=sections,
        meanings=meanings_of(column.header for each in sections for column in each.columns),
        left_out=_first(reading.warnings),
        pictures=pictures,
        no_pictures=no_pictures,
        findings=explain(rows),
        method=method_of(rows, reading.records, margin),
        sessions=sessions,
        made_by=made_by,
        more_commands=len(sessions.commands) - len(made_by),
        commands_to_see=list(commands_to_see(paths)),
        runs=runs_columns(listed),
        num_runs=len(listed),
        runs_left_out=len(reading.records) - len(listed),
    )


def _title(works: Sequence[str]) -> str:
    """The work, or what several kinds of work have in common."""
    if len(works) == 1:
        return works[0]
    first, *others = (work.split(", ") for work in works)
    common = [part for part in first if all(part in other for other in others)]
    return ", ".join([*common, f"{len(works)} kinds of work"])


def _subtitle(records: Sequence[RunRecord], sessions: Sessions) -> str:
    days = sorted({record.started_at[:10] for record in records if record.started_at})
    parts = [
        format_count(len(sessions.parts), "session"),
        format_count(len(records), "run"),
        " to ".join(dict.fromkeys([days[0], days[-1]])) if days else "",
    ]
    return ", ".join(part for part in parts if part)


def _versions(sessions: Sessions) -> str:
    """The versions that decide a figure, of all sessions."""
    names = ("torch", "CUDA", "NCCL", "driver", "Python", "mgpubench")
    parts = []
    for name in names:
        texts = dict.fromkeys(part.facts[name] for part in sessions.parts if name in part.facts)
        if texts:
            parts.append(f"{name} {' / '.join(texts)}")
    return ", ".join(parts)


def _of_first_group(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.group == rows[0].group]


def _first(lines: Sequence[str]) -> list[str]:
    more = len(lines) - MAX_LINES
    return [*lines[:MAX_LINES], *([f"and {more} more"] if more > 0 else [])]
