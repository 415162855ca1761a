"""The order of the runs, which is a part of the method.

A round is one run of every configuration. Over the rounds every configuration takes every position
about equally often, so that drift (heat, clocks, other users) affects all of them alike (Barrett et
al., OOPSLA 2017).
"""

from __future__ import annotations

import random


def draw_order(num_configurations: int, rounds: int, rng: random.Random) -> list[int]:
    """Indices of configurations, round after round, balanced over positions.

    Every block of `num_configurations` rounds is a Latin square with shuffled rows, columns and
    symbols: in each block each configuration takes each position exactly once.
    """
    order: list[int] = []
    everything = range(num_configurations)
    for start in range(0, rounds, num_configurations):
        symbols = rng.sample(everything, num_configurations)
        columns = rng.sample(everything, num_configurations)
        rows = rng.sample(everything, num_configurations)
        for row in rows[: rounds - start]:
            order += [symbols[(row + column) % num_configurations] for column in columns]
    return order
