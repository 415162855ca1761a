"""Lines of loss on their way from the ranks to the parent."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpubench.launch.loss_lines import (
    CAPACITY,
    LossLine,
    LossReader,
    LossWriter,
    loss_file,
    rank_sources,
)


def writers(folder: Path, count: int) -> list[LossWriter]:
    return [LossWriter(loss_file(folder, rank)) for rank in range(count)]


def test_the_mean_is_over_the_samples_of_all_ranks(tmp_path: Path) -> None:
    first, second = writers(tmp_path, 2)
    reader = LossReader(rank_sources(tmp_path, range(2)))
    first.append(LossLine(10, 30, 60.0))
    second.append(LossLine(10, 10, 60.0))
    (line,) = reader.new_lines()
    assert (line.step, line.samples, line.loss_sum, line.loss) == (10, 40, 120.0, 3.0)


def test_a_line_is_given_once_and_only_when_all_ranks_have_it(tmp_path: Path) -> None:
    first, second = writers(tmp_path, 2)
    reader = LossReader(rank_sources(tmp_path, range(2)))
    first.append(LossLine(1, 1, 1.0))
    first.append(LossLine(2, 1, 2.0))
    assert reader.new_lines() == []
    second.append(LossLine(1, 1, 3.0))
    assert reader.new_lines() == [LossLine(1, 2, 4.0)]
    assert reader.new_lines() == []
    second.append(LossLine(2, 1, 4.0))
    assert reader.new_lines() == [LossLine(2, 2, 6.0)]


def test_there_are_no_lines_before_the_ranks_have_begun(tmp_path: Path) -> None:
    reader = LossReader(rank_sources(tmp_path, range(2)))
    assert reader.new_lines() == []
    loss_file(tmp_path, 0).touch()
    assert reader.new_lines() == []


def test_a_reader_that_was_away_for_long_goes_on_with_the_newest_lines(tmp_path: Path) -> None:
    (writer,) = writers(tmp_path, 1)
    reader = LossReader(rank_sources(tmp_path, range(1)))
    for step in range(1, CAPACITY + 11):
        writer.append(LossLine(step, 1, float(step)))
    lines = reader.new_lines()
    assert [line.step for line in lines] == list(range(11, CAPACITY + 11))
    assert all(line.loss == line.step for line in lines)


def test_a_line_that_one_rank_lost_does_not_hold_up_the_others(tmp_path: Path) -> None:
    first, second = writers(tmp_path, 2)
    reader = LossReader(rank_sources(tmp_path, range(2)))
    for step in (1, 2, 3):
        first.append(LossLine(step, 1, 1.0))
    for step in (2, 3):
        second.append(LossLine(step, 1, 2.0))
    assert [line.step for line in reader.new_lines()] == [2, 3]
    second.append(LossLine(1, 1, 2.0))
    assert reader.new_lines() == []


def test_what_is_not_a_number_arrives_as_such(tmp_path: Path) -> None:
    (writer,) = writers(tmp_path, 1)
    writer.append(LossLine(1, 2, float("inf")))
    (line,) = LossReader(rank_sources(tmp_path, range(1))).new_lines()
    assert line.loss == pytest.approx(float("inf"))
