"""However epochs.csv is damaged, compare ends with a message."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mgpubench.cli import cli
from tests.trainings import epochs, write_training
from tests.unit.results.test_mutations import NASTY

with tempfile.TemporaryDirectory() as made:
    FOLDER = write_training(Path(made), epochs(4, 2, 2))
    NAME = FOLDER.name
    SESSION_JSON = (FOLDER / "session.json").read_bytes()
    CONTENT = (FOLDER / "epochs.csv").read_bytes()

places = st.integers(0, len(CONTENT) - 1)


def with_cell(line: int, column: int, cell: bytes) -> bytes:
    rows = [row.split(b",") for row in CONTENT.splitlines()]
    rows[line % len(rows)][column % len(rows[0])] = cell
    return b"\n".join(map(b",".join, rows)) + b"\n"


mutations = st.one_of(
    places.map(lambda end: CONTENT[:end]),
    st.builds(lambda at, more: CONTENT[:at] + more + CONTENT[at:], places, st.binary(max_size=9)),
    st.builds(lambda at, n: CONTENT[:at] + CONTENT[at + n :], places, st.integers(1, 300)),
    st.builds(with_cell, st.integers(0, 3), st.integers(0, 99), st.sampled_from(NASTY)),
    st.sampled_from(
        [
            CONTENT + CONTENT,
            CONTENT.replace(b",", b";"),
            CONTENT.decode().encode("utf-16"),
        ]
    ),
)


@given(mutations)
def test_compare_ends_with_a_message_for_any_file_of_epochs(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / NAME
        folder.mkdir()
        (folder / "session.json").write_bytes(SESSION_JSON)
        (folder / "epochs.csv").write_bytes(content)
        result = CliRunner().invoke(cli, ["compare", str(folder), "--format", "json"])
    assert result.exit_code in (0, 1, 2), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if result.exit_code == 0:
        json.loads(result.stdout)
    else:
        assert result.stderr.startswith("error: ") or "\nerror: " in result.stderr
        assert result.stdout == ""
