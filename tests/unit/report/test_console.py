"""A terminal without a width or height."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from mgpubench.report.columns import Column
from mgpubench.report.console import open_console
from mgpubench.report.tables import print_table

PACKAGE = Path(__file__).parents[3] / "mgpubench"


def shown(monkeypatch: pytest.MonkeyPatch, columns: str, lines: str) -> str:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", lines)
    file = io.StringIO()
    console = open_console(file=file)
    console.print("a sentence of several words")
    print_table([Column("mode", ["single", "ddp"], is_number=False)], console)
    return file.getvalue()


@pytest.mark.parametrize(("columns", "lines"), [("0", "25"), ("000", "0"), ("80", "0")])
def test_a_width_of_0_is_like_80_columns(
    monkeypatch: pytest.MonkeyPatch, columns: str, lines: str
) -> None:
    usual = shown(monkeypatch, "80", "25")
    assert "a sentence of several words\n" in usual
    assert "ddp" in usual
    assert shown(monkeypatch, columns, lines) == usual


def test_every_console_is_made_in_one_place() -> None:
    made = [
        path.name
        for path in PACKAGE.rglob("*.py")
        if re.search(r"(?<!open_)Console\(", path.read_text(encoding="utf-8"))
    ]
    assert made == ["console.py"]
