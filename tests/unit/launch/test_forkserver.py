"""What the fork server, and so every worker, inherits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mgpubench.launch.forkserver import environment_of_workers


def test_what_would_change_the_precision_unseen_is_kept_from_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before they load NVIDIA's libraries, which may read it at once."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    with environment_of_workers(tmp_path):
        assert "NVIDIA_TF32_OVERRIDE" not in os.environ
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"


def test_a_users_own_place_for_compiled_code_is_heeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with environment_of_workers(tmp_path):
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "compiled")
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "of-the-user")
    with environment_of_workers(tmp_path):
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "of-the-user"
