"""Tests that share what is expensive are run by one process."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("probe")
def test_groups_are_seen(request: pytest.FixtureRequest) -> None:
    """Without them each process makes the fixtures of a module again, and GPU tests run at once."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("one process runs all tests")
    assert request.node.nodeid.endswith("@probe")
