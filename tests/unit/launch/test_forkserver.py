"""What the fork server, and so every worker, inherits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mgpubench.launch.forkserver import PRELOAD_VARIABLE, environment_of_workers


def test_workers_do_not_get_a_variable_that_overrides_the_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is removed before they load NVIDIA's libraries, which may read it at once."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    with environment_of_workers(tmp_path, []):
        assert "NVIDIA_TF32_OVERRIDE" not in os.environ
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"


def test_a_users_own_folder_for_compiled_code_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with environment_of_workers(tmp_path, []):
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "compiled")
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "of-the-user")
    with environment_of_workers(tmp_path, []):
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "of-the-user"


def test_modules_to_preload_are_named_for_the_fork_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PRELOAD_VARIABLE, raising=False)
    with environment_of_workers(tmp_path, ("one.module", "another")):
        assert os.environ[PRELOAD_VARIABLE] == "one.module another"
    assert PRELOAD_VARIABLE not in os.environ
