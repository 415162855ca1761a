"""A writer of checkpoints that is killed, or whose disk is full: the last one can be loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_surroundings import unshared

pytestmark = pytest.mark.faults

KILLS = 50
REPOSITORY = Path(__file__).parents[2]


def writer(*arguments: object, prefix: tuple[str, ...] = ()) -> Any:
    """What tests.checkpoint_writer found."""
    command = [*prefix, sys.executable, "-m", "tests.checkpoint_writer", *map(str, arguments)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_after_kill_9_at_any_moment_the_last_checkpoint_can_be_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    result = writer("kill", folder, KILLS)
    assert result["last"] > KILLS / 5
    # Otherwise no kill came in the middle of a write.
    assert result["unfinished"] > KILLS / 5
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_full_disk_is_named_and_the_last_checkpoint_can_be_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    prefix = unshared("-m", f"mount -t tmpfs -o size=10m tmpfs {folder}")
    result = writer("fill", folder, prefix=prefix)
    assert result["names"] == ["epoch-0001.pt", "epoch-0002.pt"]
    path = folder / "epoch-0003.pt"
    assert result["message"] == f"{path} cannot be written: No space left on device"
    assert result["hint"].startswith("Make room for it.")
    assert result["exit_code"] == 1
