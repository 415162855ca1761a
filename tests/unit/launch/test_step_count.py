"""The step count that crosses the process border, and what the parent concludes from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mgpubench.config.run_config import RunConfig
from mgpubench.errors import RunFailed
from mgpubench.launch.pace import check_pace
from mgpubench.launch.step_count import StepCount, StepCounter, read_step_count

MakeConfig = Callable[..., RunConfig]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The times in ns that the counter will see, to be filled by the test."""
    times: list[int] = []
    monkeypatch.setattr(time, "perf_counter_ns", lambda: times.pop(0))
    yield times
    monkeypatch.undo()


def test_nothing_is_counted_before_the_worker_has_begun(tmp_path: Path) -> None:
    assert read_step_count(tmp_path / "steps") == StepCount(0, 0, 0)


def test_half_a_file_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "steps").write_bytes(b"\1" * 23)
    assert read_step_count(tmp_path / "steps") == StepCount(0, 0, 0)


def test_a_counter_starts_at_zero(tmp_path: Path) -> None:
    StepCounter(tmp_path / "steps")
    assert read_step_count(tmp_path / "steps") == StepCount(0, 0, 0)


def test_a_counter_is_read_as_it_was_written(tmp_path: Path, clock: list[int]) -> None:
    clock += [5_000_000_000, 6_000_000_000, 9_000_000_000]
    counter = StepCounter(tmp_path / "steps")
    seen = []
    for _ in range(3):
        counter.advance()
        seen.append(read_step_count(tmp_path / "steps"))
    assert seen == [
        StepCount(1, 5_000_000_000, 5_000_000_000),
        StepCount(2, 5_000_000_000, 6_000_000_000),
        StepCount(3, 5_000_000_000, 9_000_000_000),
    ]
    assert [count.seconds_per_step for count in seen] == [None, 1.0, 2.0]


def test_a_run_that_has_not_begun_has_no_pace() -> None:
    assert StepCount(0, 0, 0).seconds_per_step is None


def paced(steps: int, seconds_per_step: float) -> StepCount:
    """So many steps, of which all but the first took so long."""
    return StepCount(steps, 0, round((steps - 1) * seconds_per_step * 1e9))


@pytest.fixture
def config(cpu_config: MakeConfig) -> RunConfig:
    """4 + 16 steps, and 100 s for them; the pace may miss that by a quarter."""
    return cpu_config(warmup_steps=4, steps=16, timeout_s=100.0)


@pytest.mark.parametrize(
    ("count", "elapsed_s"),
    [
        (StepCount(0, 0, 0), 100.0),  # the limit itself is in time
        (paced(3, 1000.0), 10.0),  # still in the warm-up
        (paced(4, 7.0), 13.0),  # 13 + 16 x 7 = 125 = 1.25 x 100
        (paced(20, 7.0), 100.0),
    ],
    ids=str,
)
def test_a_run_that_may_end_in_time_goes_on(
    config: RunConfig, count: StepCount, elapsed_s: float
) -> None:
    check_pace(config, count, elapsed_s)


def test_a_run_that_cannot_end_in_time_is_ended_after_the_warm_up(config: RunConfig) -> None:
    with pytest.raises(RunFailed) as caught:
        check_pace(config, paced(4, 7.0), 13.1)
    assert caught.value.message == (
        "single x1 cannot end within --timeout 100 s: 4 of 20 steps done, 7 s a step; it would "
        "need about 2 min 05 s"
    )
    assert caught.value.hint.startswith("Raise --timeout")


@pytest.mark.parametrize("warmup_steps", [0, 1])
def test_one_step_is_no_pace(cpu_config: MakeConfig, warmup_steps: int) -> None:
    config = cpu_config(warmup_steps=warmup_steps, steps=10, timeout_s=1.0)
    check_pace(config, paced(1, 0.0), 0.9)
    with pytest.raises(RunFailed):
        check_pace(config, paced(2, 0.5), 0.9)


def test_a_run_beyond_its_time_is_ended_whatever_its_pace(config: RunConfig) -> None:
    with pytest.raises(RunFailed) as caught:
        check_pace(config, StepCount(0, 0, 0), 100.1)
    assert caught.value.message == (
        "single x1 did not end within --timeout 100 s: 0 of 20 steps done"
    )
    with pytest.raises(RunFailed, match=r"did not end .* 19 of 20 steps done, 0\.1 s a step"):
        check_pace(config, paced(19, 0.1), 100.1)
