"""A folder split into images to train on and images to evaluate on, class by class."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

from mgpubench.errors import RequestRefused
from mgpubench.format import format_count

Samples = list[tuple[str, int]]
"""Path and class number of images."""


def split_samples(
    samples: Sequence[tuple[str, int]], classes: Sequence[str], share: float, seed: int
) -> tuple[Samples, Samples]:
    """`share` of each class to train on, and the rest to evaluate on, drawn from a seed.

    Both keep the order of the listing.

    Raises:
        RequestRefused: if a class would have no image on one of the sides.
    """
    by_class: defaultdict[int, Samples] = defaultdict(list)
    for sample in samples:
        by_class[sample[1]].append(sample)
    training: set[tuple[str, int]] = set()
    for label, members in by_class.items():
        count = round(len(members) * share)
        if not 0 < count < len(members):
            side = "train on" if not count else "evaluate on"
            raise RequestRefused(
                f"--split {share:g} leaves class {classes[label]} "
                f"({format_count(len(members), 'image')}) without an image to {side}",
                "Use another share, or --eval-data with a folder of its own.",
            )
        training.update(random.Random(f"{seed}/{label}").sample(members, count))
    return (
        [sample for sample in samples if sample in training],
        [sample for sample in samples if sample not in training],
    )
