"""The order of the runs, which is a part of the method.

A round is one run of every configuration. Over the rounds every configuration takes every position
about equally often, so that drift (heat, clocks, other users) affects all of them alike (Barrett et
al., OOPSLA 2017). It also follows every configuration about equally often, so that what a run
leaves behind (heat, memory) affects all of them alike.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

TRIES = 50
"""So many Latin squares are drawn for a block, of which the most even one is taken."""

Followers = Counter[tuple[int, int]]
"""How often the second configuration ran right after the first one."""


def draw_order(num_configurations: int, rounds: int, rng: random.Random) -> list[int]:
    """Indices of configurations, round after round, balanced over positions and predecessors.

    Every block of `num_configurations` rounds is a Latin square with shuffled rows, columns and
    symbols: in each block each configuration takes each position exactly once. Of TRIES squares it
    is the one after which the counts "X right after Y" are most even, by least squares. X after X
    counts too: otherwise the last run of a round would never be followed by the same configuration.

    A longer order from an equal generator begins with the shorter one, so that rounds can be added.
    """
    blocks = draw_blocks(num_configurations, rng)
    size = num_configurations * rounds
    order: list[int] = []
    while len(order) < size:
        order += next(blocks)
    return order[:size]


def draw_blocks(num_configurations: int, rng: random.Random) -> Iterator[list[int]]:
    """The same order without end, in blocks of `num_configurations` rounds."""
    followers: Followers = Counter()
    last: list[int] = []
    while True:
        squares = [_latin_square(num_configurations, rng) for _ in range(TRIES)]
        block = min(squares, key=partial(_unevenness, followers, last))
        followers.update(_pairs([*last, *block]))
        last = block[-1:]
        yield block


def _latin_square(size: int, rng: random.Random) -> list[int]:
    """A shuffled cyclic Latin square, row after row."""
    symbols, rows, columns = (rng.sample(range(size), size) for _ in range(3))
    return [symbols[(row + column) % size] for row in rows for column in columns]


def _pairs(order: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise(order))


def _unevenness(followers: Followers, last: Sequence[int], square: Sequence[int]) -> int:
    """Sum of squares of the counts after a square, which follows the `last` configuration.

    For a given total, even counts make it least.
    """
    added = Counter(_pairs([*last, *square]))
    return sum(
        (followers[pair] + count) ** 2 - followers[pair] ** 2 for pair, count in added.items()
    )
