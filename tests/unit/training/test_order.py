"""Which images a device gets in each step: the same whatever shares them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mgpubench.training.data.order import Cut, ImageOrder, Place, epoch_order

Step = list[list[Place]]
"""The micro-batches of a step."""

SEED = 3


def cut(num_images: int, devices: int, micro: int, accumulate: int, own: range) -> Cut:
    return Cut(
        num_images=num_images,
        num_devices=devices,
        accumulate=accumulate,
        micro_batch_per_device=micro,
        device_numbers=own,
    )


def steps_of(piece: Cut, epochs: range = range(1)) -> list[Step]:
    """The micro-batches of a process, step by step."""
    batches = list(ImageOrder(piece, SEED, epochs))
    size = piece.accumulate
    assert len(batches) == len(epochs) * piece.steps * size
    return [batches[start : start + size] for start in range(0, len(batches), size)]


@st.composite
def cuts(draw: Callable[..., int]) -> tuple[int, int, int, int]:
    devices = draw(st.integers(1, 5))
    micro = draw(st.integers(1, 4))
    accumulate = draw(st.integers(1, 3))
    size = devices * micro * accumulate
    return draw(st.integers(size, 4 * size)), devices, micro, accumulate


@given(cuts())
def test_dp_and_ddp_give_each_device_the_same_images_in_each_micro_batch(
    case: tuple[int, int, int, int],
) -> None:
    devices = case[1]
    whole = steps_of(cut(*case, own=range(devices)))
    ranks = [steps_of(cut(*case, own=range(rank, rank + 1))) for rank in range(devices)]
    for number, step in enumerate(whole):
        for place, micro_batch in enumerate(step):
            # What torch.nn.DataParallel makes of the batch.
            pieces = torch.tensor(micro_batch).chunk(devices)
            for rank, piece in enumerate(pieces):
                assert [tuple(each) for each in piece.tolist()] == ranks[rank][number][place]


@given(cuts())
def test_every_image_comes_once_an_epoch_but_those_of_the_incomplete_batch(
    case: tuple[int, int, int, int],
) -> None:
    num_images, devices, micro, accumulate = case
    images = [
        image
        for step in steps_of(cut(*case, own=range(devices)))
        for micro_batch in step
        for _, image in micro_batch
    ]
    assert len(images) == len(set(images))
    assert len(images) == num_images - num_images % (devices * micro * accumulate)
    assert set(images) <= set(range(num_images))


def test_a_global_batch_holds_the_same_images_for_every_number_of_devices() -> None:
    def sets(devices: int, micro: int, accumulate: int = 1) -> list[set[int]]:
        steps = steps_of(cut(50, devices, micro, accumulate, range(devices)))
        return [{image for batch in step for _, image in batch} for step in steps]

    expected = sets(1, 12)
    assert len(expected) == 4
    assert all(len(each) == 12 for each in expected)
    assert sets(2, 6) == sets(3, 4) == sets(12, 1) == expected
    assert sets(2, 3, accumulate=2) == sets(1, 4, accumulate=3) == expected


def test_accumulation_cuts_the_part_of_a_device_in_one_piece() -> None:
    whole = steps_of(cut(24, 2, 6, 1, range(1, 2)))
    pieces = steps_of(cut(24, 2, 2, 3, range(1, 2)))
    assert [[*chain(*step)] for step in pieces] == [step[0] for step in whole]


def test_every_epoch_has_its_own_order_and_says_its_number() -> None:
    first, second = steps_of(cut(8, 1, 8, 1, range(1)), epochs=range(4, 6))
    assert {epoch for epoch, _ in first[0]} == {4}
    assert {epoch for epoch, _ in second[0]} == {5}
    assert [image for _, image in first[0]] != [image for _, image in second[0]]
    assert [image for _, image in first[0]] == epoch_order(8, SEED, 4).tolist()


def test_without_a_last_epoch_it_has_no_end() -> None:
    endless: Iterator[list[Place]] = iter(ImageOrder(cut(4, 1, 4, 1, range(1)), SEED))
    assert [batch[0][0] for batch in islice(endless, 5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_order_depends_on_the_seed_alone(seed: int) -> None:
    torch.manual_seed(99)  # the default generator has no part in it
    order = epoch_order(20, seed, 0).tolist()
    assert sorted(order) == list(range(20))
    assert order == epoch_order(20, seed, 0).tolist()
    assert order != epoch_order(20, seed + 1, 0).tolist()
