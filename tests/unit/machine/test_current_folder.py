"""A command refuses to start in a folder that no longer exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpubench.errors import RequestRefused
from mgpubench.machine.current_folder import check_current_folder


def test_a_current_folder_that_was_removed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "removed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    check_current_folder()
    folder.rmdir()
    with pytest.raises(RequestRefused, match="the current folder no longer exists"):
        check_current_folder()
