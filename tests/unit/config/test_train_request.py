"""Which numbers a training takes, and what it may begin with."""

from __future__ import annotations

from typing import Any

import pytest

from mgpubench.config.train_request import TrainOptions
from mgpubench.errors import RequestRefused
from mgpubench.training.schedule import learning_rate


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        *((name, 0, "least 1") for name in ("epochs", "eval_every", "checkpoint_every", "keep")),
        ("epochs", 2**31, "most 2147483647"),
        ("keep", -1, "least 1"),
        *(("lr", value, "least 0 and below 100000") for value in (-1.0, 100_000.0)),
        *(("weight_decay", value, "least 0 and below 100000") for value in (-0.1, 1e300)),
        *(("momentum", value, "least 0 and below 1") for value in (-0.1, 1.0)),
        *(("label_smoothing", value, "least 0 and below 1") for value in (-0.1, 1.0)),
    ],
)
def test_a_number_out_of_its_bounds_is_refused_with_the_bound(
    name: str, value: Any, bound: str
) -> None:
    with pytest.raises(RequestRefused) as caught:
        TrainOptions(**{name: value})
    option = name.replace("_", "-")
    shown = f"{value:g}" if isinstance(value, float) else value
    assert caught.value.message == f"--{option} is {shown}, and must be at {bound}"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "name",
    [
        *("lr", "weight_decay", "momentum", "label_smoothing"),
        *("warmup_epochs", "clip_grad_norm", "split"),
    ],
)
def test_what_is_no_finite_number_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(RequestRefused, match=f"^--{name.replace('_', '-')} is {value:g}, and must"):
        TrainOptions(**{name: value})


def test_a_warm_up_may_be_as_long_as_the_training_and_not_longer() -> None:
    options = TrainOptions(epochs=2, warmup_epochs=2.0, lr=0.5)
    rates = [learning_rate(options, epoch, step, 2) for epoch in (0, 1) for step in (0, 1)]
    assert rates == [0.125, 0.25, 0.375, 0.5]
    with pytest.raises(RequestRefused, match=r"--warmup-epochs 2.01 is more than --epochs 2"):
        TrainOptions(epochs=2, warmup_epochs=2.01)


@pytest.mark.parametrize("epochs", [0.5, 0.1, 1e-300, 5e-324])
def test_a_warm_up_that_ends_within_a_step_does_not_exceed_the_rate(epochs: float) -> None:
    """An epoch has three steps, so half an epoch ends in the middle of the second one."""
    options = TrainOptions(warmup_epochs=epochs, lr=0.3)
    first = 0.2 if epochs == 0.5 else 0.3
    rates = [learning_rate(options, 0, step, 3) for step in range(3)]
    assert rates == pytest.approx([first, 0.3, 0.3])
