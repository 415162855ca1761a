"""What may be said about a ratio: from one session, from two, from more, and from none."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from scipy import stats as scipy_stats

from mgpubench.analysis import stats
from mgpubench.analysis.comparison import (
    MAX_SESSIONS_TO_TEST,
    Comparison,
    Evidence,
    Session,
    conclude,
)

MARGIN = 0.02
NOISE = [0.004, -0.006, 0.001, 0.005, -0.003, -0.002, 0.001]
"""Log ratios of seven rounds around 0."""


def shifted(shift: float, scale: float = 1.0, rounds: int = 7) -> tuple[float, ...]:
    return tuple(scale * value + shift for value in NOISE[:rounds])


def judged(
    *sessions: Sequence[float], error_rate: float = 0.05, sequential: bool = False
) -> Comparison:
    """The conclusion from sessions with these log ratios."""
    evidence = Evidence(
        sessions=tuple(
            Session(logs=tuple(logs), is_sequential=sequential, session_id=f"s{number}")
            for number, logs in enumerate(sessions, start=1)
        ),
        unpaired_ratio=1.5,
    )
    return conclude(evidence, MARGIN, error_rate)


# One session.


@pytest.mark.parametrize(
    ("logs", "verdict"),
    [
        (shifted(0.16), "faster"),
        (shifted(-0.16), "slower"),
        (shifted(0.003), "equivalent"),
        (shifted(0.01, scale=8), "undecided"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("error_rate", [0.05, 0.025])
def test_one_session_is_judged_by_students_paired_t(
    logs: Sequence[float], verdict: str, error_rate: float
) -> None:
    result = judged(logs, error_rate=error_rate)
    low, high = scipy_stats.ttest_1samp(logs, 0.0).confidence_interval(1 - error_rate)
    assert result.method == "rounds"
    assert result.ratio == pytest.approx(math.exp(sum(logs) / 7))
    assert result.interval == pytest.approx((math.exp(low), math.exp(high)))
    assert (result.verdict, result.confidence) == (verdict, 1 - error_rate)
    assert (result.pairs, result.paired, result.session_ratios) == (7, True, (result.ratio,))


def test_the_interval_excludes_one_exactly_where_scipys_p_value_is_below_five_percent() -> None:
    outcomes = set()
    for shift in (-0.01, -0.005, -0.003, 0.0, 0.002, 0.004, 0.006, 0.01):
        interval = judged(shifted(shift)).interval
        assert interval is not None
        is_significant = bool(scipy_stats.ttest_1samp(shifted(shift), 0.0).pvalue < 0.05)
        assert (interval[0] > 1 or interval[1] < 1) == is_significant
        outcomes.add(is_significant)
    assert outcomes == {True, False}


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_fewer_than_five_rounds_give_a_ratio_and_no_interval(rounds: int, sequential: bool) -> None:
    result = judged([0.157] * rounds, sequential=sequential)
    assert result.ratio == pytest.approx(1.17, rel=1e-3)
    assert (result.interval, result.confidence, result.noise_floor) == (None, None, None)
    assert (result.verdict, result.rounds_needed) == ("undecided", 5)


def test_a_session_that_was_added_to_is_judged_by_the_sequence() -> None:
    logs = shifted(0.16)
    result = judged(logs, sequential=True)
    half_width = stats.sequence_half_width(math.sqrt(stats.variance(logs)), 7, 0.05)
    centre = sum(logs) / 7
    assert result.method == "sequence"
    assert result.interval == pytest.approx(
        (math.exp(centre - half_width), math.exp(centre + half_width))
    )
    assert result.interval[0] < judged(logs).interval[0]  # type: ignore[index]


def test_a_sequence_that_is_still_infinite_is_undecided_and_no_interval() -> None:
    """Five rounds of a family of six: the first finite width is at six."""
    result = judged(shifted(0.16, rounds=5), error_rate=0.05 / 6, sequential=True)
    assert (result.interval, result.confidence, result.verdict) == (None, None, "undecided")
    assert result.rounds_needed == 6


def test_an_undecided_session_says_how_many_rounds_would_settle_it() -> None:
    logs = shifted(0.01, scale=8)
    assert judged(logs).rounds_needed == stats.rounds_to_decide(logs, MARGIN, 0.05)
    half = judged(logs, error_rate=0.025).rounds_needed
    assert half is not None
    assert half > (judged(logs).rounds_needed or 0)
    assert judged(shifted(0.16)).rounds_needed is None


def test_rounds_without_any_spread_are_judged_by_their_ratio() -> None:
    assert judged([0.0] * 5).interval == (1.0, 1.0)
    assert judged([0.0] * 5).verdict == "equivalent"
    assert judged([0.25] * 5).verdict == "faster"


def test_only_one_session_has_a_noise_floor() -> None:
    assert judged(shifted(0.0)).noise_floor == pytest.approx(stats.noise_floor(NOISE))
    assert judged(shifted(0.0), shifted(0.01)).noise_floor is None


# Two sessions.


@pytest.mark.parametrize(
    ("shifts", "verdict"),
    [
        ((0.16, 0.12), "faster"),
        ((-0.16, -0.12), "slower"),
        ((0.003, -0.003), "equivalent"),
        ((0.16, 0.003), "undecided"),
        ((0.16, -0.16), "undecided"),
    ],
)
def test_two_sessions_have_no_interval_and_a_verdict_only_if_both_give_it(
    shifts: tuple[float, float], verdict: str
) -> None:
    result = judged(*map(shifted, shifts))
    assert (result.method, result.interval, result.confidence) == ("both", None, None)
    assert (result.verdict, result.rounds_needed) == (verdict, None)
    assert result.pairs == 14
    means = sorted(sum(shifted(shift)) / 7 for shift in shifts)
    assert result.session_ratios == pytest.approx(tuple(map(math.exp, means)))
    assert result.ratio == pytest.approx(math.exp(sum(means) / 2))


def test_a_second_session_with_too_few_rounds_leaves_it_undecided() -> None:
    assert judged(shifted(0.16), shifted(0.16, rounds=4)).verdict == "undecided"


def test_each_of_two_sessions_is_judged_in_its_own_way() -> None:
    """One is sequential, and not yet decided by its wider interval."""
    logs = shifted(0.012, scale=2.5)
    assert judged(logs).verdict == "faster"
    assert judged(logs, sequential=True).verdict == "undecided"
    evidence = Evidence(
        sessions=(Session(logs=logs), Session(logs=logs, is_sequential=True)), unpaired_ratio=1.0
    )
    assert conclude(evidence, MARGIN, 0.05).verdict == "undecided"


# Three and more.


def test_of_three_sessions_each_is_one_observation_however_many_rounds_it_has() -> None:
    sessions = [shifted(0.10), shifted(0.13, rounds=3), shifted(0.07, rounds=5)]
    result = judged(*sessions)
    means = [sum(logs) / len(logs) for logs in sessions]
    low, high = scipy_stats.ttest_1samp(means, 0.0).confidence_interval(0.95)
    assert result.method == "sessions"
    assert result.ratio == pytest.approx(math.exp(sum(means) / 3))
    assert result.interval == pytest.approx((math.exp(low), math.exp(high)))
    assert (result.verdict, result.confidence, result.pairs) == ("faster", 0.95, 15)
    assert (result.rounds_needed, result.noise_floor) == (None, None)


def test_rounds_of_three_sessions_are_not_pooled() -> None:
    """21 rounds would decide it; the three sessions differ too much among themselves."""
    sessions = [shifted(0.00), shifted(0.03), shifted(0.06)]
    pooled = [value for logs in sessions for value in logs]
    assert scipy_stats.ttest_1samp(pooled, 0.0).pvalue < 0.001
    assert judged(*sessions).verdict == "undecided"


def test_three_sessions_may_have_been_added_to() -> None:
    """Their means are what is judged."""
    sessions = [shifted(0.10), shifted(0.13), shifted(0.07)]
    assert judged(*sessions, sequential=True).interval == judged(*sessions).interval


def test_one_round_is_enough_of_each_of_three_sessions() -> None:
    result = judged([0.10], [0.11], [0.12])
    assert result.verdict == "faster"
    assert result.interval is not None


# Unpaired.


def test_without_rounds_in_common_there_is_a_ratio_and_nothing_else() -> None:
    result = judged()
    assert (result.method, result.paired, result.ratio, result.pairs) == (
        "unpaired", False, 1.5, 0,
    )  # fmt: skip
    assert (result.interval, result.confidence, result.verdict) == (None, None, None)
    assert (result.rounds_needed, result.noise_floor, result.disagree) == (None, None, False)


# Disagreement.


@pytest.mark.parametrize(
    ("sessions", "disagree"),
    [
        ((shifted(0.00), shifted(0.03)), True),
        ((shifted(0.00), shifted(0.015)), False),  # not by chance, but within the margin
        ((shifted(0.0, 10), shifted(0.03, 10)), False),  # beyond the margin, but by chance
        ((shifted(0.00), shifted(0.00), shifted(0.03)), True),
        ((shifted(0.00), shifted(0.10, rounds=1)), False),  # one round has no spread
        ((shifted(0.05),), False),
    ],
)
def test_sessions_disagree_beyond_the_margin_and_beyond_chance(
    sessions: tuple[Sequence[float], ...], disagree: bool
) -> None:
    assert judged(*sessions).disagree is disagree


def test_the_two_conditions_of_disagreement_are_those_that_were_meant() -> None:
    apart, by_chance = (shifted(0.0), shifted(0.015)), (shifted(0.0, 10), shifted(0.03, 10))
    assert (stats.means_differ_by_chance(apart) or 1) < 0.01
    assert (stats.means_differ_by_chance(by_chance) or 0) > 0.01


@pytest.mark.parametrize("sessions", [2, 3, 6, MAX_SESSIONS_TO_TEST])
def test_equal_sessions_rarely_disagree(sessions: int) -> None:
    rng = random.Random(3)
    disagreeing = sum(
        judged(*([rng.gauss(0.0, 0.04) for _ in range(6)] for _ in range(sessions))).disagree
        for _ in range(300)
    )
    assert disagreeing / 300 <= 0.03


def test_many_sessions_are_not_tested() -> None:
    sessions = [shifted(0.03 * (number % 2)) for number in range(MAX_SESSIONS_TO_TEST + 1)]
    assert judged(*sessions[:-1]).disagree
    assert not judged(*sessions).disagree


# What counts as enough.


@pytest.mark.parametrize(
    ("rounds", "enough"),
    [
        ((), False), ((4,), False), ((5,), True), ((5, 5), True), ((5, 4), False),
        ((1, 1, 1), True), ((7, 1, 1), True),
    ],
)  # fmt: skip
def test_evidence_knows_whether_it_can_decide(rounds: tuple[int, ...], enough: bool) -> None:
    sessions = tuple(Session(logs=shifted(0.0, rounds=number)) for number in rounds)
    assert Evidence(sessions=sessions, unpaired_ratio=1.0).can_decide is enough


@pytest.mark.parametrize("sequential", [False, True])
def test_no_digit_depends_on_the_order_of_rounds_and_sessions(sequential: bool) -> None:
    rng = random.Random(0)
    sessions = [
        Session(
            logs=tuple(sorted(rng.gauss(0.01 * number, 0.02) for _ in range(5 + number))),
            is_sequential=sequential,
            session_id=f"s{number}",
        )
        for number in range(4)
    ]
    for count in (1, 2, 3, 4):
        expected = conclude(
            Evidence(sessions=tuple(sessions[:count]), unpaired_ratio=1.0), MARGIN, 0.05
        )
        for _ in range(5):
            shuffled = tuple(rng.sample(sessions[:count], count))
            assert conclude(Evidence(sessions=shuffled, unpaired_ratio=1.0), MARGIN, 0.05) == (
                expected
            )


def test_swapping_the_sides_inverts_ratio_interval_and_verdict() -> None:
    rng = random.Random(5)
    opposite = {"faster": "slower", "slower": "faster"}
    verdicts = set()
    for _ in range(200):
        centre = rng.choice([0.0, 0.02, 0.05])
        forth = judged(logs := [rng.gauss(centre, 0.02) for _ in range(rng.randint(5, 12))])
        back = judged([-value for value in logs])
        assert back.interval is not None
        low, high = back.interval
        assert forth.ratio == pytest.approx(1 / back.ratio)
        assert forth.interval == pytest.approx((1 / high, 1 / low))
        assert forth.verdict == opposite.get(str(back.verdict), back.verdict)
        verdicts.add(forth.verdict)
    assert {"faster", "undecided"} <= verdicts
