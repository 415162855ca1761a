"""How often a verdict is wrong where there is no difference: every way to one that was found.

Small simulations with the product's own functions. `scripts/coverage` makes the larger ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial

import pytest

from mgpubench.analysis.comparison import Comparison, Evidence, Session, conclude
from tests.simulations import (
    CARRY_OVER,
    MARGIN,
    NOISES,
    Cell,
    ddp_against_dp,
    independent,
    paired,
    pooled,
    repeat,
    resumed,
    session_logs,
    single_against_ddp,
    table,
    two_times,
    until_decided,
)


def allowed(target: float, cell: Cell) -> float:
    """A target, and three standard errors for chance."""
    return target + 3 * math.sqrt(target * (1 - target) / cell.experiments)


def of(experiment: Callable[..., list[Comparison]], times: int = 400, **settings: object) -> Cell:
    return repeat(partial(experiment, **settings), times, seed=20261129)


@pytest.mark.parametrize("faster", [0.01, 0.02])
def test_a_resumed_side_is_not_paired_with_runs_of_an_earlier_time(faster: float) -> None:
    """36 and 51 % once, when pairs were made by the label of their round."""
    cell = of(resumed, faster=faster, only_missing=False, times=300)
    assert cell.intervals == 300
    assert cell.wrong_share <= allowed(0.06, cell)


@pytest.mark.parametrize("faster", [0.01, 0.02])
def test_only_the_missing_runs_give_no_verdict(faster: float) -> None:
    cell = of(resumed, faster=faster, only_missing=True, times=100)
    assert (cell.wrong, cell.intervals) == (0, 0)


@pytest.mark.parametrize("faster", [0.01, 0.02])
def test_two_sessions_with_one_mode_each_give_no_verdict(faster: float) -> None:
    """45 and 70 % once, by Welch's test over their runs."""
    cell = of(two_times, faster=faster, times=100)
    assert (cell.wrong, cell.intervals) == (0, 0)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_three_sessions_are_not_pooled_as_if_their_rounds_were_independent(
    noise: Callable[..., object],
) -> None:
    """25 % once, and the interval held the truth in 43 %."""
    cell = of(pooled, noise=noise, sessions=3, between=0.015, times=300)
    assert cell.wrong_share <= allowed(0.06, cell)
    assert cell.coverage is not None
    assert cell.coverage >= 1 - allowed(0.05, cell)


def test_two_sessions_that_differ_from_day_to_day_rarely_agree_on_a_wrong_verdict() -> None:
    cell = of(pooled, noise=independent, sessions=2, between=0.015, times=300)
    assert cell.intervals == 0
    assert cell.wrong_share <= allowed(0.06, cell)


@pytest.mark.parametrize(
    ("noise", "first_look", "target"),
    [
        ("independent", 0, 0.05),
        ("AR(0.7)", 0, 0.05),
        ("independent", 6, 0.07),  # a plain look first, and then as the hint says
    ],
)
def test_looking_after_every_round_until_it_is_decided(
    noise: str, first_look: int, target: float
) -> None:
    """24 to 35 % once with plain intervals, and 10 to 13 % for those who followed the hint."""
    cell = of(until_decided, noise=NOISES[noise], first_look=first_look, times=200)
    assert cell.wrong_share <= allowed(target, cell)


@pytest.mark.parametrize("rows", [6, 12])
def test_a_table_of_many_rows(rows: int) -> None:
    """21 and 35 % once for any of them."""
    cell = of(table, noise=independent, rows=rows, rounds=6)
    assert cell.wrong_share <= allowed(0.06, cell)


@pytest.mark.parametrize("experiment", [single_against_ddp, ddp_against_dp])
@pytest.mark.parametrize("rounds", [6, 10])
def test_a_run_that_slows_down_the_next_one(
    experiment: Callable[..., list[Comparison]], rounds: int
) -> None:
    """15 % once, as ddp often came right after dp, and single did not."""
    cell = of(experiment, noise=independent, rounds=rounds, carry_over=CARRY_OVER, times=300)
    assert cell.wrong_share <= allowed(0.06, cell)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize("experiment", [paired, ddp_against_dp])
def test_one_undisturbed_session(
    experiment: Callable[..., list[Comparison]], noise: Callable[..., object]
) -> None:
    cell = of(experiment, noise=noise, rounds=6)
    assert cell.wrong_share <= allowed(0.06, cell)
    assert cell.coverage is not None
    assert cell.coverage >= 1 - allowed(0.05, cell)


def test_a_true_difference_is_found() -> None:
    """Otherwise all of the above would be easy: 5 % in 6 rounds with a spread of 2 %."""
    found = of(lambda rng: _with_difference(rng, 0.05), times=200)
    assert found.wrong_share >= 0.85  # "faster", which would be wrong without a difference


def _with_difference(rng: random.Random, difference: float) -> list[Comparison]:
    logs = session_logs(rng, independent, 6)
    pairs = zip(logs["ddp"], logs["dp"], strict=True)
    session = Session(logs=tuple(difference + ddp - dp for ddp, dp in pairs))
    return [conclude(Evidence(sessions=(session,), unpaired_ratio=1.0), MARGIN, 0.05)]
