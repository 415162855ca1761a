"""The order of the runs is balanced over positions."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from mgpubench.config.order import draw_order


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 6, 10, 15])
def test_configurations_take_positions_equally_often(k: int, rounds: int) -> None:
    for seed in range(5):
        order = draw_order(k, rounds, random.Random(seed))
        assert len(order) == k * rounds
        taken = Counter((order[i], i % k) for i in range(len(order)))
        # Rounds / k rounded down or up, and never three times here and not at all there.
        times = {taken[index, place] for index in range(k) for place in range(k)}
        assert times <= {rounds // k, -(-rounds // k)}
