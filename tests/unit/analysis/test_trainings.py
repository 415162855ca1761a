"""Trainings side by side, with figures that are worked out by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpubench.analysis.metrics import (
    best_epoch,
    seconds_to_accuracy,
    training_s,
    training_samples_per_s,
)
from mgpubench.analysis.row import parse_baseline
from mgpubench.analysis.training_groups import training_group
from mgpubench.analysis.trainings import TrainingRow, VersusTraining, compare_trainings
from mgpubench.results.read_trainings import Training, read_trainings
from mgpubench.results.training_facts import read_facts
from tests.trainings import epoch, epochs, in_mode, write_training

# The figures.


def test_the_throughput_of_a_training_is_a_ratio_of_sums() -> None:
    """240 images in 8 s. A mean of the rates 20, 40 and 40 would be 33.3."""
    assert training_samples_per_s(epochs(4, 2, 2)) == 30
    assert training_s(epochs(4, 2, 2)) == 8
    assert training_samples_per_s([]) is None


def test_the_best_epoch_is_the_first_with_the_highest_accuracy() -> None:
    best = best_epoch(epochs(1, 1, 1, 1, top1=(0.5, 0.75, 0.7, 0.75)))
    assert best is not None
    assert (best.top1, best.epoch) == (0.75, 2)
    assert best_epoch([epoch(1)]) is None


@pytest.mark.parametrize(
    ("top1", "seconds"),
    [(0.5, 4), (0.51, 6), (0.75, 6), (0.751, None), (0.29, 4)],
)
def test_the_time_to_an_accuracy_ends_with_the_first_epoch_that_reached_it(
    top1: float, seconds: float | None
) -> None:
    """Epochs of 4, 2 and 2 s with 50, 75 and 70 %; 3 s of evaluation and 1 s of saving each."""
    trained = epochs(4, 2, 2, eval_s=3.0, checkpoint_save_s=1.0)
    assert seconds_to_accuracy(trained, top1) == seconds


def test_29_percent_are_29_of_100_images_whatever_the_floats_say() -> None:
    assert seconds_to_accuracy([epoch(1, top1=0.1 + 0.2)], 0.3) == 2
    assert seconds_to_accuracy([epoch(1, top1=0.3)], 0.1 + 0.2) == 2


def test_epochs_without_an_evaluation_count_as_time(tmp_path: Path) -> None:
    trained = [epoch(1, 4.0), epoch(2, 2.0, top1=0.9)]
    assert seconds_to_accuracy(trained, 0.9) == 6


def test_without_all_epochs_before_there_is_no_time_to_an_accuracy() -> None:
    assert seconds_to_accuracy([epoch(2, top1=0.9)], 0.5) is None
    assert seconds_to_accuracy([epoch(1), epoch(3, top1=0.9)], 0.5) is None
    assert seconds_to_accuracy([epoch(1, top1=0.9), epoch(3)], 0.5) == 2


# The groups.


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """Makes a training that begins with some epochs."""
    facts = read_facts(write_training(tmp_path, []))

    def training(name: str, trained: Any, **changes: Any) -> Training:
        return Training(
            folder=tmp_path / name,
            facts=replace(facts, session_id=name, **changes),
            epochs=tuple(trained),
        )

    return training


@pytest.mark.parametrize(
    "changes",
    [
        {"lr": 0.5},
        {"seed": 1},
        {"optimizer": "adam"},
        {"evaluation": "split 0.5"},
        {"weights": "torchvision's"},
        {"augment": False},
        {"dataset_digest": "cd"},
        {"evaluation_digest": "cd"},
        {"environment": (("NCCL_P2P_DISABLE", "1"),)},
    ],
    ids=str,
)
def test_other_work_is_another_group(make: Any, changes: dict[str, Any]) -> None:
    one, other = make("a", epochs(4, 2, 2)), make("b", epochs(4, 2, 2), **changes)
    assert training_group(one) != training_group(other)


@pytest.mark.parametrize(
    "changes", [{"machine": "bbbb2222"}, {"torch_version": "2.9"}, {"device_names": "1x NVIDIA Y"}]
)
def test_another_place_is_another_group_even_if_only_some_epochs_were_there(
    make: Any, changes: dict[str, Any]
) -> None:
    here, moved = epochs(4, 2, 2), [*epochs(4, 2, 2)[:2], replace(epoch(3), **changes)]
    assert training_group(make("a", here)) != training_group(make("b", moved))


def test_mode_devices_epochs_and_loader_workers_do_not_make_a_group(make: Any) -> None:
    one = make("a", epochs(4, 2, 2), epochs=3)
    other = make("b", in_mode("ddp", 8, 4, 2, 2, loader_workers=16), epochs=9)
    assert training_group(one) == training_group(other)


def test_planned_epochs_and_momentum_count_only_where_they_matter(make: Any) -> None:
    def group(**changes: Any) -> Any:
        return training_group(make("a", [epoch(1)], **changes))

    assert group(lr_schedule="step", epochs=3) == group(lr_schedule="step", epochs=9)
    assert group(lr_schedule="cosine", epochs=3) != group(lr_schedule="cosine", epochs=9)
    assert group(optimizer="adam", momentum=0.1) == group(optimizer="adam", momentum=0.2)
    assert group(optimizer="sgd", momentum=0.1) != group(optimizer="sgd", momentum=0.2)


@pytest.mark.parametrize("changes", [{"machine": ""}, {"device_names": "1x CPU"}])
def test_of_unknown_machines_nothing_is_known_to_be_equal(
    make: Any, changes: dict[str, Any]
) -> None:
    one, other = (make(name, [epoch(1, **changes)]) for name in "ab")
    assert training_group(one) != training_group(other)
    assert training_group(one) == training_group(make("a", [epoch(1, **changes)]))


# The rows.


def rows(*trainings: Training, baseline: str = "") -> list[TrainingRow]:
    """The rows for some trainings, whatever their order."""
    shuffled = random.sample(trainings, len(trainings))
    return compare_trainings(shuffled, parse_baseline(baseline) if baseline else None, 0.75)


def ratios(*trainings: Training, baseline: str = "") -> list[tuple[str, float | None]]:
    """Name and ratio of each training; 1 for a baseline."""
    return [
        (row.session_id, row.versus.ratio if row.versus else 1.0)
        for row in rows(*trainings, baseline=baseline)
    ]


def test_each_training_is_divided_by_single_or_else_by_dp_on_as_many_devices(make: Any) -> None:
    single = make("s", epochs(4, 2, 2))
    dp = make("dp", in_mode("dp", 2, 2, 1, 1))
    ddp = make("ddp", in_mode("ddp", 2, 1, 0.5, 0.5))
    ddp4 = make("ddp4", in_mode("ddp", 4, 1, 0.5, 0.5))
    everything = ratios(ddp4, ddp, dp, single)
    assert everything == [("s", 1.0), ("dp", 2.0), ("ddp", 4.0), ("ddp4", 4.0)]
    assert ratios(ddp4, ddp, dp) == [("dp", 1.0), ("ddp", 2.0), ("ddp4", None)]
    assert ratios(ddp) == [("ddp", None)]
    fsdp = make("fsdp", in_mode("fsdp", 2, 2, 1, 1))
    assert ratios(ddp, fsdp) == [("ddp", 1.0), ("fsdp", 0.5)]
    assert ratios(fsdp) == [("fsdp", None)]


def test_the_figures_of_a_row(make: Any) -> None:
    (row, other) = rows(make("s", epochs(4, 2, 2)), make("ddp", in_mode("ddp", 2, 1, 1, 1)))
    assert row.best is not None
    assert (row.train_s, row.throughput_samples_per_s, row.best.epoch) == (8, 30, 2)
    assert (row.seconds_to_accuracy, row.versus, row.places) == (
        6,
        None,
        (("single", "single", 1),),
    )
    assert other.versus == VersusTraining(
        baseline="single", session_id="s", ratio=80 / 30, epochs=3, candidates=1
    )


def test_a_ratio_is_over_the_epochs_that_both_have(make: Any) -> None:
    """Over all: 30 against 20 images/s. Over the first epoch: 20 against 20."""
    one, short = make("s", epochs(4, 2, 2)), make("ddp", in_mode("ddp", 2, 4, top1=(0.5,)))
    assert ratios(one, short) == [("s", 1.0), ("ddp", 1.0)]
    assert [row.throughput_samples_per_s for row in rows(one, short)] == [30, 20]


def test_trainings_without_a_common_epoch_have_no_ratio(make: Any) -> None:
    assert ratios(make("s", [epoch(1)]), make("t", [epoch(2)]), baseline="s") == [
        ("s", 1.0),
        ("t", None),
    ]


def test_a_baseline_may_be_a_mode_its_options_or_a_training(make: Any) -> None:
    plain = make("plain", in_mode("ddp", 2, 4, 2, 2))
    zero = make("zero", in_mode("ddp", 2, 2, 1, 1), options="zero=true")
    dp = make("dp", in_mode("dp", 4, 8, 4, 4))
    assert ratios(plain, zero, baseline="ddp") == [("plain", 1.0), ("zero", 2.0)]
    assert ratios(plain, zero, baseline="ddp/zero=true") == [("plain", 0.5), ("zero", 1.0)]
    assert ratios(plain, zero, dp, baseline="zero") == [
        ("dp", 0.25),
        ("plain", 0.5),
        ("zero", 1.0),
    ]
    assert ratios(plain, baseline="single") == [("plain", None)]


def test_of_several_baselines_none_is_chosen(make: Any) -> None:
    first, second = (make(name, epochs(4, 2, 2)) for name in ("a", "b"))
    ddp = make("ddp", in_mode("ddp", 2, 1, 1, 1))
    assert ratios(first, second, ddp) == [("a", None), ("b", None), ("ddp", None)]
    assert [row.versus.candidates for row in rows(first, second, ddp) if row.versus] == [2, 2, 2]
    assert ratios(first, second, ddp, baseline="a")[:2] == [("a", 1.0), ("b", 1.0)]


def test_a_training_that_changed_its_mode_is_neither_divided_nor_a_baseline(make: Any) -> None:
    changed = make("c", [*in_mode("dp", 2, 4, 2, 2)[:2], *in_mode("ddp", 2, 4, 2, 2)[2:]])
    dp, ddp = make("dp", in_mode("dp", 2, 4, 2, 2)), make("ddp", in_mode("ddp", 2, 4, 2, 2))
    assert ratios(changed, dp, ddp) == [("c", None), ("dp", 1.0), ("ddp", 1.0)]
    assert ratios(changed, ddp) == [("c", None), ("ddp", None)]
    (row,) = rows(changed)
    assert row.places == (("dp", "dp", 2), ("ddp", "ddp", 2))
    assert (row.train_s, row.seconds_to_accuracy) == (8, 6)


def test_different_work_is_never_divided(make: Any) -> None:
    assert ratios(make("s", epochs(4, 2, 2)), make("ddp", in_mode("ddp", 2, 1, 1, 1), lr=0.5)) == [
        ("s", 1.0),
        ("ddp", None),
    ]


def test_missing_rows_are_noticed(make: Any) -> None:
    whole, gap = make("a", epochs(4, 2, 2)), make("b", [epoch(1), epoch(3)])
    late, continued = (
        make("c", [epoch(2)]),
        make("d", [epoch(2)], weights="checkpoint x/epoch-0001.pt"),
    )
    lacking = {row.session_id: row.lacks_epochs for row in rows(whole, gap, late, continued)}
    assert lacking == {"a": False, "b": True, "c": True, "d": False}


def test_what_is_read_can_be_compared(tmp_path: Path) -> None:
    write_training(tmp_path, epochs(4, 2, 2))
    write_training(tmp_path, in_mode("ddp", 2, 2, 1, 1))
    found = read_trainings([tmp_path]).trainings
    assert [
        row.versus.ratio if row.versus else 1 for row in compare_trainings(found, None, None)
    ] == [1, 2]
