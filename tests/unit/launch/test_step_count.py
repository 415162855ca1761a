"""The step count, written by a worker and read by the parent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpubench.launch.step_count import StepCount, StepCounter, read_step_count


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
