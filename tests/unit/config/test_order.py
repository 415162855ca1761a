"""The order of the runs is balanced over positions and over predecessors, and can be continued."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise, product

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


@pytest.mark.parametrize("k", [2, 3, 4])
def test_in_every_block_each_configuration_takes_each_position_once(k: int) -> None:
    for seed in range(20):
        order = draw_order(k, 4 * k, random.Random(seed))
        for start in range(0, 4 * k * k, k * k):
            block = {(order[i], i % k) for i in range(start, start + k * k)}
            assert block == set(product(range(k), repeat=2))


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_a_longer_order_begins_with_the_shorter_one(k: int) -> None:
    """So that rounds can be added with the seed alone, whatever their number was before."""
    for seed in range(5):
        longest = draw_order(k, 17, random.Random(seed))
        for rounds in range(1, 17):
            assert draw_order(k, rounds, random.Random(seed)) == longest[: k * rounds]


def followers(order: list[int], k: int) -> tuple[list[int], list[int]]:
    """How often X runs right after another Y, and after itself."""
    counts = Counter(pairwise(order))
    others = [counts[pair] for pair in product(range(k), repeat=2) if pair[0] != pair[1]]
    return others, [counts[index, index] for index in range(k)]


def test_three_configurations_follow_each_other_equally_often_in_six_rounds() -> None:
    """Of 17 neighbours at most 5, where two rounds meet, can be X after X."""
    for seed in range(150):
        others, itself = followers(draw_order(3, 6, random.Random(seed)), 3)
        assert sum(others) + sum(itself) == 17
        assert max(others) - min(others) <= 1
        assert max(itself) - min(itself) <= 1
        assert min(others) == 2
        assert sum(itself) >= 2  # 3 to 5, but for rare draws


@pytest.mark.parametrize(("k", "most"), [(2, 1), (3, 4)])
def test_added_rounds_keep_the_neighbours_even(k: int, most: int) -> None:
    """Every block makes good what the ones before left uneven: nothing adds up over 12 of them."""
    for seed in range(30):
        order = draw_order(k, 12 * k, random.Random(seed))
        for blocks in range(2, 13):
            others, itself = followers(order[: blocks * k * k], k)
            assert max(others + itself) - min(others + itself) <= most


def test_no_neighbour_is_preferred_over_many_seeds() -> None:
    """Each of 6 ordered pairs is a sixth of all: its standard error here is 0.8 % of that."""
    pairs, itself = [0] * 6, [0] * 3
    for seed in range(500):
        of_others, of_itself = followers(draw_order(3, 6, random.Random(seed)), 3)
        pairs = [total + more for total, more in zip(pairs, of_others, strict=True)]
        itself = [total + more for total, more in zip(itself, of_itself, strict=True)]
    assert all(abs(6 * count / sum(pairs) - 1) < 0.03 for count in pairs), pairs
    assert all(abs(3 * count / sum(itself) - 1) < 0.06 for count in itself), itself


def test_the_order_depends_on_the_seed() -> None:
    """Few orders are even, and all of them are equally good: none is always taken."""
    drawn = Counter(tuple(draw_order(3, 6, random.Random(seed))) for seed in range(200))
    assert len(drawn) >= 12
    assert max(drawn.values()) < 40
