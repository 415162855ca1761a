"""The loss of a rank, line by line, and what it costs the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mgpubench.config.run_config import RunConfig
from mgpubench.launch.loss_lines import LossLine, LossReader, rank_sources
from mgpubench.launch.supervisor import Supervisor
from mgpubench.session.workers import launch_run
from mgpubench.training.devices import Part
from mgpubench.training.loss_log import NUM_COPIES, LossLog
from tests.conftest import make_cpu_config

PartOf = Callable[..., Part]
Make = Callable[..., RunConfig]


def lines_of(part: Part) -> list[LossLine]:
    return LossReader(rank_sources(part.losses.parent, [0])).new_lines()


@pytest.fixture
def part(part_of: PartOf, cpu_config: Make) -> Part:
    """A part that leaves a line every three steps."""
    return part_of(cpu_config(log_every=3))


def test_a_line_holds_the_sum_since_the_line_before(part: Part) -> None:
    log = LossLog(part)
    for step in range(1, 8):
        log.after_step(torch.tensor(float(step)), samples=2)
    assert lines_of(part) == [LossLine(3, 6, 1.0 + 2 + 3), LossLine(6, 6, 4.0 + 5 + 6)]


def test_a_line_can_be_ended_early_and_the_next_one_is_whole_again(part: Part) -> None:
    log = LossLog(part)
    for step in range(1, 6):
        log.after_step(torch.tensor(1.0), samples=1)
        if step == 2:
            log.end_line()
            log.end_line()  # nothing to end
    log.finish()
    assert lines_of(part) == [LossLine(2, 2, 2.0), LossLine(5, 3, 3.0)]


def test_the_sum_does_not_lose_small_losses_beside_large_ones(part: Part) -> None:
    log = LossLog(part)
    for loss in (1e8, 0.25, 0.5):
        log.after_step(torch.tensor(loss), samples=1)
    assert lines_of(part) == [LossLine(3, 3, 1e8 + 0.75)]


class LateEvent:
    """An event of a device that is behind the host."""

    def __init__(self) -> None:
        self.is_done = False
        self.waits = 0

    def record(self) -> None:
        self.is_done = False

    def query(self) -> bool:
        return self.is_done

    def synchronize(self) -> None:
        self.waits += not self.is_done
        self.is_done = True


@pytest.fixture
def late(part_of: PartOf, cpu_config: Make) -> tuple[LossLog, list[LateEvent], Part]:
    """A log with a line a step on a device that is behind."""
    part = part_of(cpu_config(log_every=1))
    log = LossLog(part)
    events = [LateEvent() for _ in range(NUM_COPIES)]
    log._events = events  # type: ignore[assignment]
    return log, events, part


def test_a_line_that_is_on_its_way_is_not_waited_for(
    late: tuple[LossLog, list[LateEvent], Part],
) -> None:
    log, events, part = late
    for step in range(1, 4):
        log.after_step(torch.tensor(float(step)), samples=1)
    assert lines_of(part) == []
    events[0].is_done = events[1].is_done = True
    log.after_step(torch.tensor(4.0), samples=1)
    assert [line.step for line in lines_of(part)] == [1, 2]
    assert not any(event.waits for event in events)
    log.finish()
    assert [line.loss for line in lines_of(part)] == [1.0, 2.0, 3.0, 4.0]


def test_no_line_is_overwritten_if_too_many_are_on_their_way(
    late: tuple[LossLog, list[LateEvent], Part],
) -> None:
    log, _, part = late
    for step in range(1, NUM_COPIES + 3):
        log.after_step(torch.tensor(float(step)), samples=1)
    log.finish()
    assert [line.loss for line in lines_of(part)] == [*map(float, range(1, NUM_COPIES + 3))]


@pytest.mark.parametrize("mode", ["single", "dp", "ddp"])
def test_the_parent_hears_the_mean_loss_of_all_ranks(supervisor: Supervisor, mode: Any) -> None:
    devices = 1 if mode == "single" else 2
    config = make_cpu_config(
        mode=mode, num_devices=devices, batch_per_device=8 // devices, log_every=1, num_classes=10
    )
    heard: list[float] = []
    ranks = launch_run(supervisor, config, lambda steps: None, on_loss=heard.append)
    mean = sum(rank.final_loss for rank in ranks) / len(ranks)
    assert heard[-1] == pytest.approx(mean, rel=1e-6)


def test_without_the_option_there_is_no_file_and_nothing_is_heard(supervisor: Supervisor) -> None:
    heard: list[float] = []
    launch_run(supervisor, make_cpu_config(), lambda steps: None, on_loss=heard.append)
    assert heard == []
