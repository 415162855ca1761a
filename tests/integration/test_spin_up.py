"""On GPUs the warm-up takes some seconds, whatever a step takes, and all ranks agree about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import RunConfig
from mgpubench.launch.supervisor import Supervisor
from mgpubench.session.workers import launch_run
from mgpubench.training.devices import Part
from mgpubench.training.loop import measure
from mgpubench.training.spin_up import spin_up
from mgpubench.training.technique import Wrapped
from mgpubench.training.trainable import build_model
from tests.conftest import make_cpu_config

SECONDS = 0.2


@pytest.mark.parametrize(("spin_up_s", "fewest"), [(0.0, 0), (SECONDS, 4)])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_few_batches_are_trained_on_for_some_time(
    part_of: Callable[..., Part], spin_up_s: float, fewest: int, accumulate: int
) -> None:
    """As many batches are taken from the loader in every mode, however long a step takes."""
    part = part_of(make_cpu_config(spin_up_s=spin_up_s, accumulate=accumulate))
    taken: list[int] = []
    trained: list[int] = []

    def batches() -> Any:
        for number in range(1000):
            taken.append(number)
            yield number

    def step(micro_batches: Any) -> Tensor:
        trained.append(next(micro_batches))
        for _ in range(accumulate - 1):
            next(micro_batches)
        return torch.zeros(())

    wrapped: Any = Wrapped(model=torch.nn.Identity(), plain=None)  # type: ignore[arg-type]
    seconds = spin_up(part, wrapped, step, batches())
    assert seconds >= spin_up_s
    assert len(taken) == fewest * accumulate
    assert len(trained) >= fewest
    assert set(trained) == set(range(0, fewest * accumulate, accumulate))


def test_the_steps_of_the_spin_up_are_no_steps_of_the_run(part_of: Callable[..., Part]) -> None:
    config = make_cpu_config(warmup_steps=3, steps=5, spin_up_s=SECONDS)
    seen: list[str] = []
    part = replace(part_of(config), on_step=lambda: seen.append("step"))
    model = build_model(part)
    record = measure(part, Wrapped(model=model, plain=model))
    assert seen == ["step"] * 8
    assert len(record.step_times_s) == len(record.samples) == 8
    assert record.spin_up_s >= SECONDS


@pytest.mark.parametrize("mode", ["dp", "ddp"])
def test_all_ranks_spin_up_equally_often(supervisor: Supervisor, mode: str) -> None:
    """Otherwise one of them would wait for ever in an all-reduce."""
    config = make_cpu_config(mode=mode, num_devices=2, spin_up_s=SECONDS, timeout_s=60.0)
    ranks = launch_run(supervisor, config, lambda steps: None)
    assert len(ranks) == config.world_size
    assert all(rank.spin_up_s >= SECONDS for rank in ranks)
    assert all(len(rank.step_times_s) == config.total_steps for rank in ranks)


def spin_ups(runs: tuple[RunConfig, ...]) -> set[tuple[float, int]]:
    return {(run.spin_up_s, run.warmup_steps) for run in runs}


def test_every_mode_on_gpus_has_at_least_20_steps_and_2_seconds(
    machine: Callable[..., Any],
) -> None:
    assert spin_ups(make_plan(Request(), machine(4)).runs) == {(2.0, 20)}
    assert spin_ups(make_plan(Request(smoke=True, device="cuda"), machine(4)).runs) == {(2.0, 20)}
    assert spin_ups(make_plan(Request(warmup_steps=5), machine(4)).runs) == {(2.0, 5)}
    assert spin_ups(make_plan(Request(warmup_steps=0), machine(4)).runs) == {(0.0, 0)}
    assert spin_ups(make_plan(Request(smoke=True), machine(4)).runs) == {(0.0, 2)}
