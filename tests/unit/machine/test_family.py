"""The CPU time and memory of this process and its descendants."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mgpubench.machine import family as family_module
from mgpubench.machine.family import Family


@pytest.mark.parametrize("lists", [True, False], ids=["lists of children", "no lists"])
def test_a_child_counts_until_it_ends(
    lists: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not lists:
        monkeypatch.setattr(family_module, "PROC", tmp_path)
        monkeypatch.setattr(family_module, "SEARCH_EVERY_S", 0.0)
    family = Family(os.getpid())
    assert family.use().cpu_s == 0.0  # nothing is known about the time before
    alone = family.use()
    busy = "while True: pass"
    with subprocess.Popen([sys.executable, "-c", busy]) as child:
        time.sleep(0.3)
        both = family.use()
        child.kill()
    assert both.processes == alone.processes + 1
    assert both.memory_bytes > alone.memory_bytes
    assert both.cpu_s > 0.02
    assert family.use().processes == alone.processes


def test_some_may_be_left_out() -> None:
    assert Family(os.getpid(), without=(os.getpid(),)).use().processes == 0
