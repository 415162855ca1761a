"""Session folders as a run leaves them, without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields, replace
from pathlib import Path

from mgpubench.results.csv_format import write_rows
from mgpubench.results.schema import RunRecord


def write_session(root: Path, name: str, records: Sequence[RunRecord]) -> Path:
    """Write records into a session folder, with its name as session_id and in their run_ids."""
    folder = root / name
    folder.mkdir(parents=True)
    header = [field.name for field in fields(RunRecord)]
    own = [
        replace(record, session_id=name, run_id=f"{name}-{number:03d}")
        for number, record in enumerate(records, start=1)
    ]
    with open(folder / "runs.csv", "w", encoding="utf-8", newline="") as file:
        write_rows(file, [header, *map(astuple, own)])
    return folder
