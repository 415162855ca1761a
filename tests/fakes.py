"""The pretended NVML for tests: in this process, or in the environment of another one."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "fake_nvml"
ROOT = Path(__file__).parents[1]


def nvml_environment(**settings: Any) -> dict[str, str]:
    """What a process needs in its environment to find the pretended NVML; see its docstring."""
    return {"PYTHONPATH": f"{ROOT}:{FOLDER}", "FAKE_NVML": json.dumps(settings)}


def use_nvml(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Any:
    """Let this process find the pretended NVML, with these settings."""
    monkeypatch.setenv("FAKE_NVML", json.dumps(settings))
    spec = importlib.util.spec_from_file_location("pynvml", FOLDER / "pynvml.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module
