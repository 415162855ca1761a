"""The findings about the runs, each with its explanation and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mgpubench.analysis.findings.catalogue import KINDS, has_table_note
from mgpubench.analysis.row import Row
from mgpubench.format import format_count
from mgpubench.report.columns import row_place

MAX_PLACES = 6

UNKNOWN_FINDING = "This version of mgpubench does not know this finding."


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """A finding, what it says, what to do, and the rows that have it."""

    number: int
    """Its place in the list, from 1. A code may be any text, and is no name of a place."""
    code: str
    meaning: str
    remedy: str
    places: list[str]
    is_noted: bool
    """True if a sentence about the whole table says it too."""


def explain(rows: Sequence[Row]) -> list[Explained]:
    """The findings about some rows, in the order of docs/findings.md; unknown codes last."""
    codes = {code for row in rows for code in row.findings}
    known = [code for code in KINDS if code in codes]
    listed = [*known, *sorted(codes - set(known))]
    return [_explained(number, code, rows) for number, code in enumerate(listed, 1)]


def _explained(number: int, code: str, rows: Sequence[Row]) -> Explained:
    kind = KINDS.get(code)
    places = list(dict.fromkeys(_place(code, row) for row in rows if code in row.findings))
    more = [f"and {len(places) - MAX_PLACES} more rows"] if len(places) > MAX_PLACES else []
    return Explained(
        number=number,
        code=code,
        meaning=kind.meaning if kind else UNKNOWN_FINDING,
        remedy=kind.remedy if kind else "",
        places=places[:MAX_PLACES] + more,
        is_noted=has_table_note(code),
    )


def _place(code: str, row: Row) -> str:
    count = row.finding_runs.get(code)
    runs = f", {count} of {format_count(row.runs, 'run')}" if count else ""
    return f"{row_place(row)}{runs}"
