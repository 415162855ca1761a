"""What the tests of training share: a process's part of a run, without a process for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mgpubench.config.run_config import RunConfig
from mgpubench.training.devices import Part
from mgpubench.training.rank import make_part


@pytest.fixture
def part_of(tmp_path: Path) -> Callable[..., Part]:
    """Makes the part of one rank of a run, with its files in the folder of the test."""

    def make(config: RunConfig, rank: int = 0, listing: Path = Path("none")) -> Part:
        return make_part(config, rank, tmp_path, listing)

    return make
