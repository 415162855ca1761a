"""However a result file is damaged, compare ends with a message, and never with a wrong figure."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mgpubench.cli import cli
from mgpubench.errors import ResultsUnreadable
from mgpubench.results.read import read_runs
from mgpubench.results.schema import RunRecord

EXAMPLE = Path(__file__).parents[3] / "results" / "example" / "runs.csv"
CONTENT = EXAMPLE.read_bytes()
LINES = CONTENT.splitlines(keepends=True)
MEASURED = read_runs(EXAMPLE).records

NASTY = (
    *(b"", b"nan", b"inf", b"-1", b"0", b"1e999", b"1,5", b"1.234,5", b"NA", b"None", b"\0"),
    *(b"\xff\xfe", b'"', b"''", b"=1+1", b"@x", b"true", b"1_000", b" 7 ", b"\xef\xbb\xbf"),
    b"9" * 400,
)

places = st.integers(0, len(CONTENT) - 1)
lines = st.integers(0, len(LINES) - 1)


def with_cell(line: int, column: int, cell: bytes) -> bytes:
    cells = LINES[line].rstrip(b"\n").split(b",")
    cells[column % len(cells)] = cell
    return b"".join([*LINES[:line], b",".join(cells) + b"\n", *LINES[line + 1 :]])


def with_line(line: int, other: int) -> bytes:
    return b"".join([*LINES[:line], LINES[other], *LINES[line:]])


def without_column(column: int) -> bytes:
    rows = [line.rstrip(b"\n").split(b",") for line in LINES]
    number = column % len(rows[0])
    return b"".join(b",".join(row[:number] + row[number + 1 :]) + b"\n" for row in rows)


def in_another_order(seed: int) -> bytes:
    rows = [line.rstrip(b"\n").split(b",") for line in LINES]
    turn = seed % len(rows[0])
    return b"".join(b",".join(row[turn:] + row[:turn]) + b"\n" for row in rows)


mutations = st.one_of(
    places.map(lambda end: CONTENT[:end]),
    places.map(lambda end: CONTENT[:end] + b"\0" * 64),
    st.builds(
        lambda at, byte: CONTENT[:at] + bytes([byte]) + CONTENT[at + 1 :],
        places,
        st.integers(0, 255),
    ),
    st.builds(lambda at, more: CONTENT[:at] + more + CONTENT[at:], places, st.binary(max_size=9)),
    st.builds(lambda at, n: CONTENT[:at] + CONTENT[at + n :], places, st.integers(1, 300)),
    st.builds(with_cell, lines, st.integers(0, 99), st.sampled_from(NASTY)),
    st.builds(with_line, lines, lines),
    st.integers(0, 99).map(without_column),
    st.integers(0, 99).map(in_another_order),
    st.sampled_from(
        [
            b"\xef\xbb\xbf" + CONTENT,
            CONTENT.replace(b"\n", b"\r\n"),
            CONTENT.replace(b",", b";"),
            CONTENT.replace(b",", b";").replace(b".", b","),
            CONTENT.decode().encode("utf-16"),
            CONTENT + CONTENT,
        ]
    ),
    st.binary(max_size=400),
)


@given(mutations)
def test_compare_ends_with_a_message_for_any_file(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        path.write_bytes(content)
        result = CliRunner().invoke(cli, ["compare", str(path), "--format", "json"])
    assert result.exit_code in (0, 1, 2), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if result.exit_code == 0:
        json.loads(result.stdout)
    else:
        assert result.stderr.startswith("error: ") or "\nerror: " in result.stderr
        assert result.stdout == ""


@given(mutations)
def test_no_figure_comes_of_a_damaged_row(content: bytes) -> None:
    """A row is used as it was, or not at all: a figure of a mode was measured in that mode."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        path.write_bytes(content)
        try:
            records = read_runs(path).records
        except ResultsUnreadable:
            return
    for record in records:
        if record.is_ok:
            assert any(is_of_one_run(record, measured) for measured in MEASURED), record


def is_of_one_run(record: RunRecord, measured: RunRecord) -> bool:
    one, other = record.throughput_samples_per_s, measured.throughput_samples_per_s
    assert one is not None
    assert other is not None
    return (record.mode, record.num_devices) == (
        measured.mode, measured.num_devices
    ) and math.isclose(one, other, rel_tol=0.0101)  # fmt: skip
