"""Marks for tests of packages that need not be installed."""

from __future__ import annotations

import importlib.util
import shutil

import pytest


def lacking() -> str:
    """What deepspeed needs and this machine does not have; empty if it has all."""
    if importlib.util.find_spec("deepspeed") is None:
        return "deepspeed is not installed: pip install '.[deepspeed]'"
    tools = [tool for tool in ("c++", "ninja") if shutil.which(tool) is None]
    return f"deepspeed needs {' and '.join(tools)}" if tools else ""


needs_deepspeed = pytest.mark.skipif(bool(lacking()), reason=lacking() or "nothing is lacking")
slow = pytest.mark.timeout(300)
"""For the tests that wait until DeepSpeed has compiled a part of itself."""
