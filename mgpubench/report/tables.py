"""What people read: tables and sentences on a terminal, and the same as Markdown.

Everything shown is `Text` and never rich markup, since a `[` may come from a result file.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mgpubench.analysis.row import Row
from mgpubench.report.columns import Column
from mgpubench.report.commands import Folders
from mgpubench.report.sections import Section, describe
from mgpubench.report.sentences import NO_FOLDERS

_AS_WIDE_AS_NEEDED = 10_000


def print_comparison(rows: Sequence[Row], console: Console, folders: Folders = NO_FOLDERS) -> None:
    """Print a table for each group of equal work, with the sentences about it."""
    print_sections(describe(rows, folders), console)


def print_sections(sections: Sequence[Section], console: Console) -> None:
    """Print sections with a blank line between two."""
    for number, section in enumerate(sections):
        if number:
            console.print()
        print_section(section, console)


def print_section(section: Section, console: Console) -> None:
    """Print a title, a table and its sentences."""
    console.print(Text(section.title, style="bold"), soft_wrap=True)
    print_table(section.columns, console)
    for sentence in section.sentences:
        console.print(Text(sentence), soft_wrap=True)


def print_table(columns: Sequence[Column], console: Console) -> None:
    """Print a table in its full width: a truncated number would be a wrong number."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    for column in columns:
        table.add_column(
            Text(column.header), justify="right" if column.is_number else "left", no_wrap=True
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map(Text, cells))
    options = console.options.update(width=_AS_WIDE_AS_NEEDED)
    table.width = console.measure(table, options=options).maximum
    console.print(table, soft_wrap=True)


def comparison_markdown(rows: Sequence[Row], folders: Folders = NO_FOLDERS) -> str:
    """The same tables and sentences as Markdown."""
    return sections_markdown(describe(rows, folders))


def sections_markdown(sections: Sequence[Section]) -> str:
    """Sections as Markdown, with a line feed at the end."""
    return "\n\n".join(map(section_markdown, sections)) + "\n"


def section_markdown(section: Section) -> str:
    """A section as Markdown, without a line feed at the end."""
    blocks = [
        f"### {_escape(section.title)}",
        _markdown_table(section.columns),
        "\n".join(f"- {_escape(sentence)}" for sentence in section.sentences),
    ]
    return "\n\n".join(block for block in blocks if block)


def _markdown_table(columns: Sequence[Column]) -> str:
    lines = [
        [column.header.replace("\n", " ") for column in columns],
        ["--:" if column.is_number else ":--" for column in columns],
        *zip(*([_escape(cell) for cell in column.cells] for column in columns), strict=True),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escape(text: str) -> str:
    """Text from result files must not become HTML, a link or a table border."""
    special = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|"})
    return text.translate(special)
