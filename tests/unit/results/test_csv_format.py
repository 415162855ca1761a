"""How values become cells, and how rows get into a file: whole, or not at all."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from mgpubench.errors import BenchError
from mgpubench.results.csv_format import append_records, format_cell


@pytest.mark.parametrize(
    ("value", "cell"),
    [(None, ""), (True, "true"), (False, "false"), (8, "8"), (1 / 3, "0.3333333333333333")],
)
def test_values_are_written_as_cells(value: object, cell: str) -> None:
    assert format_cell(value) == cell


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_are_a_bug(value: float) -> None:
    with pytest.raises(ValueError, match="must not get into a result file"):
        format_cell(value)


def test_numbers_are_never_taken_for_formulas() -> None:
    assert format_cell(-1.5) == "-1.5"


@pytest.mark.parametrize(("text", "cell"), [("=1+1", "'=1+1"), ("'=1", "''=1"), ("plain", "plain")])
def test_a_formula_gets_an_apostrophe(text: str, cell: str) -> None:
    assert format_cell(text) == cell


@dataclass(frozen=True)
class Point:
    x: int
    name: str


def test_rows_have_the_columns_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text("name,x\n")
    append_records(path, ["name", "x"], [Point(1, "a,b"), Point(2, "c\nd")])
    assert path.read_text() == 'name,x\n"a,b",1\nc d,2\n'


def test_a_file_is_as_it_was_if_the_disk_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "points.csv"
    path.write_text("x,name\n")

    def fsync(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(BenchError, match=r"points\.csv cannot be written: No space left"):
        append_records(path, ["x", "name"], [Point(1, "a")])
    assert path.read_text() == "x,name\n"
