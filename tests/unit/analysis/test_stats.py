"""Ratio, interval and verdict against scipy.stats, which mgpubench itself does not use."""

import math
from itertools import count

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from mgpubench.analysis.stats import (
    MAX_ROUNDS,
    compare_paired,
    compare_unpaired,
    estimate,
    geometric_mean,
    judge,
    student_t_quantile,
)

MARGIN = 0.02
DRIFT = [100.0, 103.0, 98.0, 101.0, 96.0, 104.0, 99.0]
"""Throughputs of a baseline in seven rounds."""

NOISE = [0.004, -0.006, 0.001, 0.005, -0.003, -0.002, 0.001]
"""Logarithms of what the changed side adds to the drift, round by round."""


def changed_by(ratio, spread=1.0):
    return [
        base * ratio * math.exp(spread * noise) for base, noise in zip(DRIFT, NOISE, strict=True)
    ]


def verdict_of(low, high):
    """The four verdicts in METHOD.md's words, written down a second time."""
    if low > 1 / (1 + MARGIN) and high < 1 + MARGIN:
        return "equivalent"
    if low <= 1 <= high:
        return "undecided"
    if low > 1:
        return "faster"
    return "slower"


def logs(values):
    return [math.log(value) for value in values]


PAIRED = {
    "faster": changed_by(1.17),
    "slower": changed_by(0.85),
    "equivalent": changed_by(1.003),
    "undecided": changed_by(1.01, spread=8),
}
UNPAIRED = {
    "faster": changed_by(1.17),
    "slower": changed_by(0.85),
    "equivalent": None,
    "undecided": changed_by(1.02),
}
QUIET = [100.0, 100.2, 99.9, 100.1, 99.8, 100.0]


@pytest.mark.parametrize("verdict", PAIRED)
def test_paired_comparison_equals_scipys_paired_t_test(verdict):
    changed = PAIRED[verdict]
    result = compare_paired(list(zip(changed, DRIFT, strict=True)), MARGIN)

    differences = [a - b for a, b in zip(logs(changed), logs(DRIFT), strict=True)]
    by_test = scipy_stats.ttest_rel(logs(changed), logs(DRIFT)).confidence_interval(0.95)
    by_hand = scipy_stats.t.interval(
        0.95, len(differences) - 1, loc=sum(differences) / 7, scale=scipy_stats.sem(differences)
    )
    assert result.ratio == pytest.approx(scipy_stats.gmean(changed) / scipy_stats.gmean(DRIFT))
    assert result.interval == pytest.approx((math.exp(by_test.low), math.exp(by_test.high)))
    assert result.interval == pytest.approx(tuple(map(math.exp, by_hand)))
    assert result.verdict == verdict == verdict_of(math.exp(by_test.low), math.exp(by_test.high))
    assert (result.pairs, result.paired) == (7, True)


@pytest.mark.parametrize("verdict", UNPAIRED)
def test_unpaired_comparison_equals_scipys_welch_test(verdict):
    baseline = QUIET if verdict == "equivalent" else DRIFT
    changed = UNPAIRED[verdict] or [100.4, 100.1, 100.3, 100.6, 100.2]
    result = compare_unpaired(changed, baseline, MARGIN)

    welch = scipy_stats.ttest_ind(logs(changed), logs(baseline), equal_var=False)
    low, high = map(math.exp, welch.confidence_interval(0.95))
    assert result.ratio == pytest.approx(scipy_stats.gmean(changed) / scipy_stats.gmean(baseline))
    assert result.interval == pytest.approx((low, high))
    assert result.verdict == verdict == verdict_of(low, high)
    assert (result.pairs, result.paired) == (min(len(changed), len(baseline)), False)


def test_the_interval_excludes_one_exactly_where_scipys_p_value_is_below_five_percent():
    outcomes = set()
    for ratio in (0.99, 0.995, 0.997, 1.0, 1.002, 1.004, 1.006, 1.01):
        changed = changed_by(ratio)
        low, high = compare_paired(list(zip(changed, DRIFT, strict=True)), MARGIN).interval
        p_value = scipy_stats.ttest_rel(logs(changed), logs(DRIFT)).pvalue
        assert (low > 1 or high < 1) == (p_value < 0.05)
        outcomes.add(bool(p_value < 0.05))
    assert outcomes == {True, False}


@pytest.mark.parametrize(("ratio", "spread"), [(1.01, 8), (1.0, 6), (1.018, 5), (0.97, 12)])
def test_rounds_needed_is_the_first_number_of_paired_rounds_that_settles_it(ratio, spread):
    changed = changed_by(ratio, spread)
    result = compare_paired(list(zip(changed, DRIFT, strict=True)), MARGIN)
    differences = [a - b for a, b in zip(logs(changed), logs(DRIFT), strict=True)]
    mean = math.fsum(differences) / 7
    deviation = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / 6)

    def settles(rounds):
        half = scipy_stats.t.ppf(0.975, rounds - 1) * deviation / math.sqrt(rounds)
        return verdict_of(math.exp(mean - half), math.exp(mean + half)) != "undecided"

    assert result.verdict == "undecided"
    assert result.rounds_needed == next(n for n in count(2) if settles(n))


def test_rounds_needed_is_the_first_number_of_runs_a_side_that_settles_it_unpaired():
    changed = changed_by(1.02)[:6]
    result = compare_unpaired(changed, DRIFT, MARGIN)
    variances = [float(scipy_stats.tvar(logs(side))) for side in (changed, DRIFT)]
    mean = math.log(scipy_stats.gmean(changed) / scipy_stats.gmean(DRIFT))

    def settles(runs):
        error = math.sqrt(sum(variances) / runs)
        freedom = sum(variances) ** 2 * (runs - 1) / sum(v**2 for v in variances)
        half = scipy_stats.t.ppf(0.975, freedom) * error
        return verdict_of(math.exp(mean - half), math.exp(mean + half)) != "undecided"

    assert result.verdict == "undecided"
    assert result.rounds_needed == next(n for n in count(7) if settles(n))


def test_no_number_of_rounds_is_promised_where_ten_thousand_would_not_do():
    pairs = [(100.0, 1.0), (1.0, 100.0), (90.0, 1.0), (1.0, 90.0), (1.0, 1.0)]
    result = compare_paired(pairs, MARGIN)
    assert (result.verdict, result.rounds_needed) == ("undecided", None)
    assert MAX_ROUNDS == 10_000


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_fewer_than_five_rounds_give_a_ratio_and_no_interval(rounds):
    result = compare_paired([(117.0, 100.0)] * rounds, MARGIN)
    assert result.ratio == pytest.approx(1.17)
    assert (result.interval, result.verdict, result.rounds_needed) == (None, "undecided", 5)


@pytest.mark.parametrize(("changed", "baseline"), [(4, 9), (9, 4), (1, 5), (1, 1)])
def test_welch_needs_five_runs_on_each_side(changed, baseline):
    result = compare_unpaired([117.0] * changed, [100.0] * baseline, MARGIN)
    assert (result.interval, result.verdict, result.rounds_needed) == (None, "undecided", 5)
    assert result.pairs == min(changed, baseline)


def test_pairing_sees_through_drift_that_hides_the_difference_from_welch():
    changed = changed_by(1.03)
    assert compare_paired(list(zip(changed, DRIFT, strict=True)), MARGIN).verdict == "faster"
    assert compare_unpaired(changed, DRIFT, MARGIN).verdict == "undecided"


def test_runs_without_any_spread_are_judged_by_their_ratio():
    assert compare_paired([(100.0, 100.0)] * 5, MARGIN).interval == (1.0, 1.0)
    assert compare_paired([(100.0, 100.0)] * 5, MARGIN).verdict == "equivalent"
    assert compare_unpaired([130.0] * 5, [100.0] * 5, MARGIN).verdict == "faster"


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        (None, "undecided"),
        ((1.001, 1.019), "equivalent"),
        ((0.985, 1.015), "equivalent"),
        ((1.001, 1.021), "faster"),
        ((0.97, 0.999), "slower"),
        ((0.979, 1.001), "undecided"),
        ((0.999, 1.021), "undecided"),
    ],
)
def test_verdict_follows_from_interval_and_margin(interval, verdict):
    assert judge(interval, MARGIN) == verdict


def test_geometric_mean_of_two_and_eight_is_four():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


def test_one_observation_has_a_mean_and_no_interval():
    single = estimate([math.log(7.0)])
    assert single.value == pytest.approx(7.0)
    assert (single.standard_error, single.interval) == (None, None)


def test_interval_of_a_mean_equals_scipys():
    sample = logs(DRIFT)
    low, high = scipy_stats.t.interval(0.95, 6, loc=sum(sample) / 7, scale=scipy_stats.sem(sample))
    assert estimate(sample).interval == pytest.approx((math.exp(low), math.exp(high)))


@pytest.mark.parametrize("freedom", [4, 6, 7.5, 200])
def test_t_quantile_equals_scipys(freedom):
    assert student_t_quantile(0.975, freedom) == pytest.approx(scipy_stats.t.ppf(0.975, freedom))


@given(
    st.lists(st.tuples(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6)), min_size=5, max_size=12),
    st.floats(0.001, 0.5),
)
def test_swapping_the_sides_inverts_ratio_interval_and_verdict(pairs, margin):
    forth = compare_paired(pairs, margin)
    back = compare_paired([(baseline, changed) for changed, baseline in pairs], margin)
    low, high = back.interval
    assert forth.ratio == pytest.approx(1 / back.ratio)
    assert forth.interval == pytest.approx((1 / high, 1 / low))
    # On the margin itself rounding decides, on either side differently.
    assume(all(abs(abs(math.log(bound)) - math.log1p(margin)) > 1e-9 for bound in (low, high)))
    opposite = {"faster": "slower", "slower": "faster"}
    assert forth.verdict == opposite.get(back.verdict, back.verdict)
