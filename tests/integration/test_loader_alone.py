"""The loader's own pace, to which a run on GPUs that waited for data is compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mgpubench.training.devices import Part
from mgpubench.training.loader_alone import MIN_STEPS, ask_loader, seconds_per_step
from mgpubench.training.loop import Trace
from mgpubench.training.technique import Wrapped
from tests.conftest import make_cpu_config

SLEEP_S = 0.005


def queued(length: int, taken: list[int]) -> Iterator[Any]:
    """Some batches are ready, and each of the others takes some time."""
    for number in range(10_000):
        if number >= length:
            time.sleep(SLEEP_S)
        taken.append(number)
        yield number


@pytest.mark.parametrize("accumulate", [1, 2])
def test_batches_that_are_ready_say_nothing_about_the_pace(accumulate: int) -> None:
    taken: list[int] = []
    config = make_cpu_config(data="photos", workers_per_rank=4, accumulate=accumulate)
    seconds = seconds_per_step(config, queued(8, taken))
    assert seconds >= SLEEP_S * accumulate
    assert len(taken) == 8 + MIN_STEPS * accumulate


class Cuda:
    """A part on a GPU, as far as the question needs it."""

    def __init__(self, **changes: Any) -> None:
        self.config = make_cpu_config(**{"data": "photos", "workers_per_rank": 1, **changes})
        self.device = SimpleNamespace(type="cuda")


@pytest.mark.parametrize(("others_wait", "asks"), [(0.0, False), (1.0, True)])
def test_all_ranks_ask_if_one_of_them_waited(
    monkeypatch: pytest.MonkeyPatch, others_wait: float, asks: bool
) -> None:
    """Their loaders share the cores: the pace of one alone would be too good."""
    part: Any = Cuda()
    monkeypatch.setattr(torch, "tensor", lambda values, device: values[0])

    def total(mine: float) -> Any:
        return torch.ones(()) * (mine + others_wait)

    wrapped: Any = type("Wrapped", (), {"sum_over_ranks": staticmethod(total)})
    seconds = ask_loader(part, wrapped, queued(0, []), 0.01)
    assert (seconds is not None) == asks
    assert ask_loader(part, wrapped, queued(0, []), 0.5) is not None


@pytest.mark.parametrize("changes", [{}, {"data": "photos", "workers_per_rank": 1}])
def test_a_cpu_need_not_ask(part_of: Callable[..., Part], changes: dict[str, Any]) -> None:
    """There the wait is the time of the device too."""
    part = part_of(make_cpu_config(**changes))
    wrapped: Any = Wrapped(model=torch.nn.Identity(), plain=None)  # type: ignore[arg-type]
    assert ask_loader(part, wrapped, iter(()), 0.9) is None


def test_the_share_is_that_of_the_window_alone() -> None:
    trace = Trace(step_times_s=[9.0, 1.0, 1.0], data_waits_ns=[9 * 10**9, 10**9 // 2, 10**9 // 4])
    assert trace.wait_share(2) == pytest.approx(0.375)
