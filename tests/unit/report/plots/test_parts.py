"""The parts of pictures: looks, places of labels, curves, step times."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpubench.report.plots.labels import spread_out
from mgpubench.report.plots.run_axis import thinned
from mgpubench.report.plots.runs import Point
from mgpubench.report.plots.step_times import read_step_times
from mgpubench.report.plots.steps import curve, middle
from mgpubench.report.plots.style import looks


def test_each_mode_has_the_same_colour_and_marker_in_every_picture() -> None:
    three = looks([("single", ""), ("dp", ""), ("ddp", "")])
    two = looks([("dp", ""), ("ddp", "")])
    assert three[1:] == two
    assert len({look.colour for look in three}) == len({look.marker for look in three}) == 3


def test_options_of_a_mode_differ_in_the_marker_so_that_grey_is_enough() -> None:
    found = looks([("single", ""), *(("ddp", f"option={number}") for number in range(8))])
    assert len({look.colour for look in found[1:]}) == 1
    assert len({look.marker for look in found[1:]}) == 8


def test_variants_of_one_mode_differ_in_colour_and_marker() -> None:
    found = looks([("ddp", "a"), ("ddp", "b"), ("ddp", "a")])
    assert found[0] == found[2]
    assert found[0].colour != found[1].colour
    assert found[0].marker != found[1].marker


def test_a_mode_that_is_not_known_has_a_look() -> None:
    assert looks([("new", ""), ("ddp", "")])[0].colour not in ("", looks([("ddp", "")])[0].colour)


@pytest.mark.parametrize(
    ("heights", "expected"),
    [
        ([0.2, 0.5], [0.2, 0.5]),
        ([0.5, 0.5], [0.5, 0.6]),
        ([0.98, 1.0], [0.9, 1.0]),
        ([-1.0, 0.0], [0.0, 0.1]),
        ([1.2, 1.2, 1.2], [0.8, 0.9, 1.0]),
        ([], []),
    ],
)
def test_labels_are_moved_until_none_covers_another(
    heights: list[float], expected: list[float]
) -> None:
    assert spread_out(heights, 0.1, 1.0) == pytest.approx(expected)


def test_a_curve_has_the_share_of_steps_up_to_each() -> None:
    assert curve([1.0, 2.0, 4.0, 8.0], 10) == ([1.0, 2.0, 4.0, 8.0], [25, 50, 75, 100])


def test_a_thinned_curve_keeps_both_ends() -> None:
    x, y = curve([float(number) for number in range(1000)], 5)
    assert x == [0.0, 250.0, 500.0, 749.0, 999.0]
    assert y == [0.1, 25.1, 50.1, 75.0, 100.0]


def test_the_median_of_an_even_number_of_steps_is_between_two() -> None:
    assert middle([1.0, 2.0, 4.0]) == 2.0
    assert middle([1.0, 2.0, 4.0, 8.0]) == 3.0


def test_thinned_runs_keep_the_highest_and_the_lowest() -> None:
    points = [Point(place, percent, ()) for place, percent in enumerate([0, 9, 1, 2, -9, 3, 4])]

    def percent(point: Point) -> float:
        return point.percent

    assert [point.percent for point in thinned(points, 3, percent)] == [0, 9, 2, -9, 4]
    assert thinned(points, 1, percent) == points


HEAD = "run_id,rank,step,phase,step_time_s,data_wait_s,samples\n"


def steps_in(folder: Path, content: str) -> dict[str, list[float]]:
    (folder / "steps.csv").write_text(HEAD + content)
    found = read_step_times([folder])
    assert found.unreadable == 0
    return found.by_run


def test_steps_are_those_of_the_rank_that_took_longest(tmp_path: Path) -> None:
    content = (
        "r1,0,1,warmup,9.0,0,4\n"
        "r1,0,2,measured,0.2,0,4\nr1,0,3,measured,0.1,0,4\n"
        "r1,1,2,measured,0.1,0,4\nr1,1,3,measured,0.4,0,4\n"
        "r2,0,1,measured,0.3,0,4\n"
    )
    assert steps_in(tmp_path, content) == {"r1": [0.1, 0.4], "r2": [0.3]}


def test_what_is_no_step_is_left_out(tmp_path: Path) -> None:
    content = (
        "r1,0,1,measured,0.2,0,4\nr1,0,2,measured,what,0,4\nr1,0,3,measured,,0,4\n"
        "r1,0,4,measured,-1,0,4\nr1,0,6,meas"
    )
    assert steps_in(tmp_path, content) == {"r1": [0.2]}


def test_a_session_without_steps_has_none(tmp_path: Path) -> None:
    assert read_step_times([tmp_path]).by_run == {}
    assert steps_in(tmp_path, "") == {}


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\xff\xfe\0"])
def test_a_file_that_is_no_table_of_steps_is_counted(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "steps.csv").write_bytes(content)
    found = read_step_times([tmp_path])
    assert (found.by_run, found.unreadable) == ({}, 1)
