"""The page as a whole: what is on it, and its HTML.

Text from result files reaches the page through the template alone, which escapes everything. The
policy of the page allows no network, and no script but the one that sorts its table.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_args

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from mgpubench import __version__
from mgpubench.analysis.stats import Verdict
from mgpubench.format import plain
from mgpubench.report.columns import Column
from mgpubench.report.html.answer import Answer
from mgpubench.report.html.findings import Explained
from mgpubench.report.html.sessions import Sessions
from mgpubench.report.sections import Section

FOLDER = Path(__file__).parent
MAKER = "mgpubench"
GENERATOR = f"{MAKER} {__version__}"

VERDICTS = get_args(Verdict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """All that is on the page, as text that is not escaped yet."""

    title: str
    subtitle: str
    headline: str
    """All answers in one sentence; empty if there is one."""
    answers: Sequence[Answer]
    more_answers: int
    """Answers that have no place at the top."""
    caveats: Sequence[str]
    modes: str
    """The modes that ran, each with what it is."""
    works: Sequence[str]
    """The work of each table, in a few words."""
    more_works: int
    versions: str
    repeat: str
    """One command that measures it again."""
    sections: Sequence[Section]
    meanings: Sequence[tuple[str, str]]
    """What the columns of the tables mean."""
    left_out: Sequence[str]
    """What could not be read, one line each."""
    pictures: Sequence[str]
    """SVG, which is not escaped: it must be safe."""
    no_pictures: str
    """Why there are none."""
    findings: Sequence[Explained]
    method: Sequence[str]
    sessions: Sessions
    made_by: Sequence[str]
    """The commands that made the runs."""
    more_commands: int
    commands_to_see: Sequence[str]
    runs: Sequence[Column]
    num_runs: int
    runs_left_out: int


def render(page: Page) -> str:
    """The HTML of a page."""
    script = _file("page.js")
    return _template().render(
        page=page,
        policy=_policy(script),
        generator=GENERATOR,
        style=_file("page.css"),
        script=script,
        runs_numbers=[place for place, column in enumerate(page.runs, 1) if column.is_number],
        rows_of=_rows_of,
        verdicts=VERDICTS,
    )


def is_report(beginning: str) -> bool:
    """True if the beginning of a file, some 1,000 characters, is that of a page made here."""
    return f'<meta name="generator" content="{MAKER} ' in beginning


def _rows_of(columns: Sequence[Column]) -> Iterator[tuple[str, ...]]:
    return zip(*(column.cells for column in columns), strict=True)


def _policy(script: str) -> str:
    """Nothing may be loaded or sent. Scripts are known by their digest, so no other one runs."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _file(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html.jinja")


def _finalize(value: object) -> object:
    """Text without characters that control how it is shown. The template escapes it after this."""
    is_html = hasattr(value, "__html__")  # a macro's own output, or marked as safe in the template
    if isinstance(value, str) and not is_html and not value.isprintable():
        return plain(value)
    return value
