"""Sessions before a change against sessions after it."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from scipy import stats as scipy_stats

from mgpubench.analysis.before_after import BeforeAfter, ChangedRow, compare_sides
from mgpubench.errors import NoUsableResults, RequestRefused
from mgpubench.results.schema import RunRecord
from tests.conftest import make_run_record as run

MARGIN = 0.02
NOISE = (0.99, 1.0, 1.012)

BEFORE = {"b1": 100.0, "b2": 102.0, "b3": 99.0}
AFTER = {"a1": 90.0, "a2": 91.5, "a3": 89.0, "a4": 90.5}
"""Levels of the sessions."""


def side(
    levels: Mapping[str, float], speedups: Mapping[str, float] | None = None, **changes: Any
) -> list[RunRecord]:
    """Three rounds of each mode in each session: its level times the mode's speed-up."""
    return [
        run(mode, level * speedup * noise, session_id=name, round=number, **changes)
        for name, level in levels.items()
        for mode, speedup in (speedups or {"ddp": 1.8}).items()
        for number, noise in enumerate(NOISE, start=1)
    ]


def compared(before: Sequence[RunRecord], after: Sequence[RunRecord]) -> BeforeAfter:
    return compare_sides(before, after, MARGIN)


def by_mode(result: BeforeAfter) -> dict[str, ChangedRow]:
    return {row.mode: row for row in result.rows}


def logs(levels: Mapping[str, float]) -> list[float]:
    return [math.log(level) for level in levels.values()]


def test_sessions_are_compared_by_welchs_t_over_their_means() -> None:
    [row] = compared(side(BEFORE), side(AFTER)).rows
    test = scipy_stats.ttest_ind(logs(AFTER), logs(BEFORE), equal_var=False)
    low, high = map(math.exp, test.confidence_interval(0.95))
    change = row.throughput
    assert change.ratio == pytest.approx(
        scipy_stats.gmean(list(AFTER.values())) / scipy_stats.gmean(list(BEFORE.values()))
    )
    assert change.interval == pytest.approx((low, high))
    assert (change.confidence, change.verdict, change.sessions) == (0.95, "slower", (3, 4))
    assert row.before_samples_per_s == pytest.approx(
        scipy_stats.gmean([1.8 * level * noise for level in BEFORE.values() for noise in NOISE])
    )
    assert (row.mode, row.num_devices, row.speedup) == ("ddp", 2, None)


def test_rounds_do_not_count_only_sessions_do() -> None:
    """Twenty rounds of one session a side are one observation a side."""
    many = [run("ddp", 100.0 + n % 3, session_id="b1", round=n) for n in range(1, 21)]
    more = [run("ddp", 80.0 + n % 3, session_id="a1", round=n) for n in range(1, 21)]
    [row] = compared(many, more).rows
    assert (row.throughput.interval, row.throughput.verdict) == (None, None)
    assert row.throughput.confidence is None
    assert row.throughput.ratio == pytest.approx(0.8, rel=0.01)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 4), (3, 2), (3, 1)])
def test_fewer_than_three_sessions_a_side_give_figures_and_no_verdict(
    before: int, after: int
) -> None:
    old = side(dict(list(BEFORE.items())[:before]))
    new = side(dict(list(AFTER.items())[:after]))
    [row] = compared(old, new).rows
    assert (row.throughput.interval, row.throughput.verdict) == (None, None)
    assert row.throughput.sessions == (before, after)
    assert row.throughput.ratio == pytest.approx(0.9, rel=0.02)


SPEEDUPS = {"single": 1.0, "ddp": 1.8}


def test_the_ratio_of_speed_ups_is_not_moved_by_a_faster_machine() -> None:
    """Everything is 10 % faster after: the throughput is, and ddp over single is not."""
    rows = by_mode(compared(side(BEFORE, SPEEDUPS), side(scaled(BEFORE, 1.1), SPEEDUPS)))
    assert rows["single"].speedup is None
    speedup = rows["ddp"].speedup
    assert speedup is not None
    assert speedup.ratio == pytest.approx(1.0)
    assert (speedup.verdict, speedup.sessions) == ("equivalent", (3, 3))
    assert rows["ddp"].throughput.verdict == "faster"


def scaled(levels: Mapping[str, float], factor: float) -> dict[str, float]:
    return {f"a-{name}": factor * level for name, level in levels.items()}


def test_the_ratio_of_ratios_is_welch_over_the_sessions_mean_log_speed_ups() -> None:
    before = {"b1": (100.0, 180.0), "b2": (101.0, 185.0), "b3": (97.0, 172.0)}
    after = {"a1": (100.0, 170.0), "a2": (99.0, 167.0), "a3": (104.0, 180.0)}

    def records(sessions: Mapping[str, tuple[float, float]]) -> list[RunRecord]:
        return [
            run(mode, rate * noise, session_id=name, round=number)
            for name, rates in sessions.items()
            for mode, rate in zip(("single", "ddp"), rates, strict=True)
            for number, noise in enumerate(NOISE, start=1)
        ]

    speedup = by_mode(compared(records(before), records(after)))["ddp"].speedup
    old = [math.log(ddp / single) for single, ddp in before.values()]
    new = [math.log(ddp / single) for single, ddp in after.values()]
    test = scipy_stats.ttest_ind(new, old, equal_var=False)
    assert speedup is not None
    assert speedup.ratio == pytest.approx(math.exp(sum(new) / 3 - sum(old) / 3))
    assert speedup.interval == pytest.approx(tuple(map(math.exp, test.confidence_interval(0.95))))
    assert speedup.verdict == "slower"


def test_speed_ups_are_paired_within_a_session() -> None:
    """A session in which single ran alone has no speed-up, but has a throughput."""
    alone = side({"a9": 95.0}, {"single": 1.0}) + side({"a8": 95.0}, {"ddp": 1.8})
    after = side(AFTER, SPEEDUPS) + alone
    row = by_mode(compared(side(BEFORE, SPEEDUPS), after))["ddp"]
    assert row.speedup is not None
    assert row.speedup.sessions == (3, 4)
    assert row.throughput.sessions == (3, 5)


@pytest.mark.parametrize("missing", ["before", "after"])
def test_without_single_on_a_side_there_is_no_ratio_of_ratios(missing: str) -> None:
    before = side(BEFORE, SPEEDUPS if missing == "after" else {"ddp": 1.8})
    after = side(AFTER, SPEEDUPS if missing == "before" else {"ddp": 1.8})
    [row] = compared(before, after).rows
    assert row.speedup is None


def test_two_singles_with_different_options_leave_the_speed_up_unknown() -> None:
    """It would not be clear which of them to divide by."""
    both = [
        *side(BEFORE, SPEEDUPS),
        *side(BEFORE, {"single": 1.1}, options="cudnn_benchmark=true"),
    ]
    assert by_mode(compared(both, side(AFTER, SPEEDUPS)))["ddp"].speedup is None


def test_verdicts_of_a_table_hold_together() -> None:
    """Three throughputs at 98.33 %, and two speed-ups at 97.5 %."""
    speedups = {"single": 1.0, "dp": 1.5, "ddp": 1.8}
    rows = by_mode(compared(side(BEFORE, speedups), side(AFTER, speedups)))
    assert {row.throughput.confidence for row in rows.values()} == {1 - 0.05 / 3}
    assert {row.speedup.confidence for row in rows.values() if row.speedup} == {0.975}


def test_a_row_with_too_few_sessions_does_not_widen_the_others() -> None:
    before = [*side(BEFORE), *side({"b1": 100.0}, {"dp": 1.5})]
    after = [*side(AFTER), *side({"a1": 100.0}, {"dp": 1.5})]
    rows = by_mode(compared(before, after))
    assert rows["ddp"].throughput.confidence == 0.95
    assert rows["dp"].throughput.verdict is None


@pytest.mark.parametrize("effective_mode", ["passthrough", "oversubscribed"])
def test_rows_that_do_not_measure_the_technique_get_no_verdict(effective_mode: str) -> None:
    before = [*side(BEFORE), *side(BEFORE, {"dp": 1.5}, effective_mode=effective_mode)]
    after = [*side(AFTER), *side(AFTER, {"dp": 1.5}, effective_mode=effective_mode)]
    rows = by_mode(compared(before, after))
    assert rows["dp"].throughput.verdict is None
    assert rows["dp"].throughput.interval is not None
    assert (rows["dp"].is_judged, rows["ddp"].is_judged) == (False, True)
    assert rows["ddp"].throughput.confidence == 0.95


def test_only_configurations_that_both_sides_have_are_rows() -> None:
    before = side(BEFORE, {"dp": 1.5, "ddp": 1.8})
    after = side(AFTER, {"single": 1.0, "ddp": 1.8})
    assert list(by_mode(compared(before, after))) == ["ddp"]
    with pytest.raises(NoUsableResults, match="no mode on as many devices in common"):
        compared(side(BEFORE, {"dp": 1.5}), side(AFTER, {"ddp": 1.8}))
    with pytest.raises(NoUsableResults, match="no mode on as many devices in common"):
        compared(side(BEFORE), side(AFTER, num_devices=4))


def test_every_difference_between_the_sides_is_named_with_its_values() -> None:
    old = {"torch_version": "2.6.0", "machine": "0badcafe", "python_version": "3.11.7", "steps": 50}
    new = {"torch_version": "2.14.1", "machine": "0badc0de", "python_version": "3.12.1"}
    result = compared(side(BEFORE, **old), side(AFTER, **new, environment="none"))
    assert result.differences == {
        "machine": ("0badcafe", "0badc0de"),
        "steps": (50, None),
        "torch_version": ("2.6.0", "2.14.1"),
        "python": ("3.11", "3.12"),
        "environment": ("", "none"),
    }
    assert compared(side(BEFORE), side(AFTER)).differences == {}


def test_a_session_on_both_sides_is_refused_by_its_name() -> None:
    with pytest.raises(RequestRefused) as caught:
        compared(side(BEFORE), side({**AFTER, "b2": 90.0}))
    assert caught.value.message == "--before and --after share session b2"
    assert caught.value.exit_code == 2


def test_sessions_without_a_name_are_not_the_same_one() -> None:
    [row] = compared(side({"": 100.0}), side({"": 90.0})).rows
    assert row.throughput.sessions == (1, 1)


@pytest.mark.parametrize("which", ["before", "after"])
def test_a_side_with_different_work_is_refused_by_what_differs(which: str) -> None:
    mixed = [*side({"x1": 100.0}), *side({"x2": 100.0}, steps=9, precision="fp32")]
    sides = {"before": side(BEFORE), "after": side(AFTER), which: mixed}
    with pytest.raises(RequestRefused) as caught:
        compared(sides["before"], sides["after"])
    assert caught.value.message == (
        f"--{which} holds runs of different work: they differ in precision, steps"
    )


@pytest.mark.parametrize("which", ["before", "after"])
def test_a_side_without_a_run_that_succeeded_has_no_results(which: str) -> None:
    failed = [run("ddp", None, status="failed", session_id="x")]
    sides = {"before": side(BEFORE), "after": side(AFTER), which: failed}
    with pytest.raises(NoUsableResults, match=f"--{which} has no run that succeeded"):
        compared(sides["before"], sides["after"])


def test_variants_of_both_sides_meet() -> None:
    def both(levels: Mapping[str, float]) -> list[RunRecord]:
        return [
            *side(levels, variant="a", variant_number=1),
            *side(scaled_alike(levels, 1.2), variant="b", variant_number=2, precision="fp32"),
        ]

    rows = compared(both(BEFORE), both(AFTER)).rows
    assert [row.variant for row in rows] == ["a", "b"]
    assert {row.throughput.confidence for row in rows} == {0.975}


def scaled_alike(levels: Mapping[str, float], factor: float) -> dict[str, float]:
    return {name: factor * level for name, level in levels.items()}


def test_no_digit_depends_on_the_order_of_the_runs() -> None:
    before, after = side(BEFORE, SPEEDUPS), side(AFTER, SPEEDUPS)
    expected = compared(before, after)
    for seed in range(5):
        rng = random.Random(seed)
        shuffled = (rng.sample(runs, len(runs)) for runs in (before, after))
        assert compared(*shuffled) == expected


def test_equal_sides_are_rarely_told_apart() -> None:
    """Sessions of one machine differ by 2 %, their rounds by 1 %; there is no change."""
    rng = random.Random(11)
    wrong = 0
    for _ in range(400):
        sides = []
        for letter in "ba":
            levels = {f"{letter}{n}": 100 * math.exp(rng.gauss(0, 0.02)) for n in range(4)}
            sides.append(
                [
                    run("ddp", level * math.exp(rng.gauss(0, 0.01)), session_id=name, round=number)
                    for name, level in levels.items()
                    for number in range(1, 6)
                ]
            )
        [row] = compared(*sides).rows
        wrong += row.throughput.verdict in ("faster", "slower")
    assert wrong / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
