"""Half-widths, tests and hints against scipy.stats, and against formulas that are coded anew."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from scipy import stats as scipy_stats

from mgpubench.analysis import stats

MARGIN = 0.02
DRIFT = [100.0, 103.0, 98.0, 101.0, 96.0, 104.0, 99.0]
"""Throughputs in seven rounds."""

LOGS = [0.004, -0.006, 0.011, 0.005, -0.003, 0.002, 0.001]
"""Log ratios of seven rounds."""


def logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


# Means and variances.


def test_geometric_mean_of_two_and_eight_is_four() -> None:
    assert stats.geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert stats.geometric_mean(DRIFT) == pytest.approx(scipy_stats.gmean(DRIFT), rel=1e-14)


@pytest.mark.parametrize("value", [1e-9, 0.1, 447.3, 1e11])
def test_geometric_mean_of_equal_values_is_exactly_that_value(value: float) -> None:
    assert stats.geometric_mean([value] * 7) == value


def test_variance_divides_by_one_less_than_the_number() -> None:
    assert stats.variance([1.0, 2.0, 6.0]) == pytest.approx(7.0)
    assert stats.variance(LOGS) == pytest.approx(scipy_stats.tvar(LOGS), rel=1e-14)


@given(st.lists(st.floats(1e-3, 1e6), min_size=3, max_size=12), st.randoms())
def test_no_figure_depends_on_the_order_of_its_values(
    values: list[float], rng: random.Random
) -> None:
    """Not in its last digit: the same runs in another file give the same table."""
    shuffled = rng.sample(values, len(values))
    others = [value * 1.5 for value in values[:-1]]
    assert stats.geometric_mean(shuffled) == stats.geometric_mean(values)
    assert stats.log_mean(shuffled) == stats.log_mean(values)
    assert stats.variance(shuffled) == stats.variance(values)
    assert stats.welch_half_width(shuffled, others, 0.05) == stats.welch_half_width(
        values, others, 0.05
    )
    assert stats.noise_floor(logs(shuffled)) == stats.noise_floor(logs(values))
    assert stats.rounds_to_decide(logs(shuffled), MARGIN, 0.05) == stats.rounds_to_decide(
        logs(values), MARGIN, 0.05
    )
    samples = [values, others, [3.0, 4.0]]
    assert stats.means_differ_by_chance(
        [shuffled, samples[2], others]
    ) == stats.means_differ_by_chance(samples)


# Half-widths.


@pytest.mark.parametrize("freedom", [2, 4, 6, 7.5, 200])
def test_t_quantile_equals_scipys(freedom: float) -> None:
    for probability in (0.8, 0.975, 0.995):
        assert stats.student_t_quantile(probability, freedom) == pytest.approx(
            scipy_stats.t.ppf(probability, freedom), rel=1e-12
        )


@pytest.mark.parametrize("error_rate", [0.05, 0.025, 0.01])
def test_t_half_width_is_that_of_scipys_interval(error_rate: float) -> None:
    low, high = scipy_stats.t.interval(1 - error_rate, 6, loc=0, scale=scipy_stats.sem(LOGS))
    spread = math.sqrt(stats.variance(LOGS))
    assert stats.t_half_width(spread, 7, error_rate) == pytest.approx((high - low) / 2, rel=1e-12)


def test_without_spread_every_half_width_is_zero() -> None:
    assert stats.t_half_width(0.0, 5, 0.05) == 0.0
    assert stats.sequence_half_width(0.0, 5, 0.05) == 0.0
    assert stats.welch_half_width([1.0] * 3, [2.0] * 3, 0.05) == 0.0


@pytest.mark.parametrize("error_rate", [0.05, 0.01])
def test_welch_half_width_is_that_of_scipys_interval(error_rate: float) -> None:
    first, second = logs(DRIFT), logs([100.4, 100.1, 100.3])
    test = scipy_stats.ttest_ind(first, second, equal_var=False)
    low, high = test.confidence_interval(1 - error_rate)
    half_width = stats.welch_half_width(first, second, error_rate)
    assert half_width == pytest.approx((high - low) / 2, rel=1e-12)
    assert stats.welch_half_width(second, first, error_rate) == pytest.approx(half_width)


# The confidence sequence.


def test_sequence_half_width_by_hand() -> None:
    """n = 5 and n = 20, worked out on paper for a spread of 1."""
    # c = 6, Q = (2.44949 / 0.05) ** 0.4 = 4.742885, x = 3.742885 / (1 - 0.790481) = 17.8642
    assert stats.sequence_half_width(1.0, 5, 0.05) == pytest.approx(3.780388, rel=1e-5)
    # c = 21, Q = (4.58258 / 0.05) ** 0.1 = 1.571136, x = 0.571136 / (1 - 0.0748160) = 0.617322
    assert stats.sequence_half_width(1.0, 20, 0.05) == pytest.approx(0.765804, rel=1e-5)


@pytest.mark.parametrize("n", [5, 7, 10, 30, 200])
@pytest.mark.parametrize("error_rate", [0.05, 0.05 / 4])
def test_sequence_half_width_equals_its_formula(n: int, error_rate: float) -> None:
    c = 1 + n
    q = (math.sqrt(c) / error_rate) ** (2 / n)
    expected = math.inf
    if q < c:
        expected = 0.02 / math.sqrt(n) * math.sqrt((n - 1) * (q - 1) / (1 - q / c))
    assert stats.sequence_half_width(0.02, n, error_rate) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("n", "error_rate"), [(5, 0.05), (8, 0.05), (12, 0.01), (40, 0.025)])
def test_at_its_end_the_mixture_of_likelihoods_is_one_over_the_error_rate(
    n: int, error_rate: float
) -> None:
    """The definition: noncentral t over central t, over effects with a standard normal prior."""
    bound = stats.sequence_half_width(1.0, n, error_rate) * math.sqrt(n)

    def weighted(effect: float) -> float:
        density = scipy_stats.nct.pdf(bound, n - 1, math.sqrt(n) * effect)
        return float(density * scipy_stats.norm.pdf(effect))

    mixture = integrate.quad(weighted, -8, 8, limit=200, points=[bound / math.sqrt(n)])[0]
    ratio = mixture / scipy_stats.t.pdf(bound, n - 1)
    assert ratio == pytest.approx(1 / error_rate, rel=1e-3)


@pytest.mark.parametrize(
    ("rows", "first"), [(1, 5), (2, 6), (3, 6), (4, 6), (5, 6), (6, 6), (12, 7)]
)
def test_the_first_look_is_at_five_rounds_and_later_with_more_rows(rows: int, first: int) -> None:
    widths = [stats.sequence_half_width(0.02, n, 0.05 / rows) for n in range(2, 12)]
    assert [math.isinf(width) for width in widths] == [n < first for n in range(2, 12)]


def test_a_sequence_never_looks_before_five_rounds() -> None:
    """Also where the formula would give a figure."""
    assert stats.sequence_half_width(0.02, 4, 0.5) == math.inf
    assert stats.sequence_half_width(0.02, 5, 0.5) < math.inf


@pytest.mark.parametrize("n", [5, 6, 10, 100, 5000])
def test_a_sequence_is_wider_than_a_single_look_and_becomes_narrower(n: int) -> None:
    width = stats.sequence_half_width(0.02, n, 0.05)
    assert width > stats.t_half_width(0.02, n, 0.05)
    assert stats.sequence_half_width(0.02, n + 1, 0.05) < width


# Do sessions differ?


def test_two_means_are_tested_like_welchs_t_test() -> None:
    first, second = logs(DRIFT), logs([104.0, 106.0, 105.0, 104.5])
    expected = scipy_stats.ttest_ind(first, second, equal_var=False).pvalue
    assert stats.means_differ_by_chance([first, second]) == pytest.approx(expected, rel=1e-10)


def test_six_means_are_tested_as_in_a_published_example() -> None:
    """R's own for oneway.test, InsectSprays: F = 36.065, df 5 and 30.043, p-value = 7.999e-12."""
    sprays = [
        [10, 7, 20, 14, 14, 12, 10, 23, 17, 20, 14, 13],
        [11, 17, 21, 11, 16, 14, 17, 17, 19, 21, 7, 13],
        [0, 1, 7, 2, 3, 1, 2, 1, 3, 0, 1, 4],
        [3, 5, 12, 6, 4, 3, 5, 5, 5, 5, 2, 4],
        [3, 5, 3, 5, 3, 6, 1, 1, 3, 2, 6, 4],
        [11, 9, 15, 22, 15, 16, 13, 10, 26, 26, 24, 13],
    ]
    assert stats.means_differ_by_chance(sprays) == pytest.approx(7.999e-12, rel=1e-3)


def test_three_means_are_tested_by_welchs_formula() -> None:
    samples = [LOGS, [0.02, 0.03, 0.01, 0.04], [0.0, 0.011, 0.004, 0.002, 0.01]]
    k = len(samples)
    weights = [len(s) / scipy_stats.tvar(s) for s in samples]
    centre = sum(w * sum(s) / len(s) for w, s in zip(weights, samples, strict=True)) / sum(weights)
    between = sum(
        w * (sum(s) / len(s) - centre) ** 2 for w, s in zip(weights, samples, strict=True)
    )
    tau = sum(
        (1 - w / sum(weights)) ** 2 / (len(s) - 1) for w, s in zip(weights, samples, strict=True)
    )
    statistic = between / (k - 1) / (1 + 2 * (k - 2) * tau / (k**2 - 1))
    expected = scipy_stats.f.sf(statistic, k - 1, (k**2 - 1) / (3 * tau))
    assert stats.means_differ_by_chance(samples) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    "samples", [[], [LOGS], [LOGS, [0.1]], [LOGS, []], [LOGS, [0.25, 0.25, 0.25]]], ids=str
)
def test_means_without_a_spread_are_not_tested(samples: list[list[float]]) -> None:
    assert stats.means_differ_by_chance(samples) is None


# Verdicts and hints.


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
def test_verdict_follows_from_interval_and_margin(
    interval: stats.Interval | None, verdict: str
) -> None:
    assert stats.judge(interval, MARGIN) == verdict


@pytest.mark.parametrize("centre", [-0.05, 0.0, 0.05])
def test_an_infinite_half_width_is_no_interval(centre: float) -> None:
    assert stats.to_interval(centre, math.inf) is None
    assert stats.to_interval(centre, 0.01) == pytest.approx(
        (math.exp(centre - 0.01), math.exp(centre + 0.01))
    )


def first_narrow_enough(sample: Sequence[float], margin: float, error_rate: float) -> int:
    """The hint, coded anew: a mean half a standard error nearer to the hardest case, log-halfway to
    the margin, and the spread that is exceeded in 20 of 100 samples."""
    n, mean = len(sample), sum(sample) / len(sample)
    spread = float(scipy_stats.tstd(sample))
    cautious = spread * math.sqrt((n - 1) / scipy_stats.chi2.ppf(0.2, n - 1))
    edge = math.log(1 + margin)
    # Narrow enough to exclude 1, or to lie within the margin: whichever is easier.
    easier = max(abs(mean), edge - abs(mean))
    target = max(edge / 2, easier - spread / math.sqrt(n) / 2)

    def half_width(rounds: int) -> float:
        c = rounds + 1
        q = (math.sqrt(c) / error_rate) ** (2 / rounds)
        if q >= c:
            return math.inf
        return cautious * math.sqrt((rounds - 1) / rounds * (q - 1) / (1 - q / c))

    return next(rounds for rounds in count(n + 1) if half_width(rounds) < target)


@pytest.mark.parametrize("shift", [0.0, 0.005, 0.01, 0.02, -0.03])
@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("error_rate", [0.05, 0.025])
def test_the_hint_is_the_first_number_of_rounds_that_would_settle_it(
    shift: float, scale: float, error_rate: float
) -> None:
    sample = [scale * value + shift for value in LOGS]
    expected = first_narrow_enough(sample, MARGIN, error_rate)
    assert expected >= 8
    assert stats.rounds_to_decide(sample, MARGIN, error_rate) == expected


def test_no_number_of_rounds_is_promised_where_ten_thousand_would_not_do() -> None:
    assert stats.rounds_to_decide([4.6, -4.6, 4.5, -4.5, 0.0], MARGIN, 0.05) is None
    assert stats.MAX_ROUNDS == 10_000


def test_who_follows_the_hint_is_mostly_decided() -> None:
    """The spread in the sample may be small by chance, so the hint takes its upper limit."""
    rng = random.Random(1)
    decided = asked = 0
    while asked < 200:
        sample = [rng.gauss(0.0, 0.02) for _ in range(6)]
        needed = stats.rounds_to_decide(sample, MARGIN, 0.05)
        if needed is None or needed > 300:
            continue
        asked += 1
        while len(sample) < needed:
            sample.append(rng.gauss(0.0, 0.02))
            spread = math.sqrt(stats.variance(sample))
            half_width = stats.sequence_half_width(spread, len(sample), 0.05)
            verdict = stats.judge(stats.to_interval(stats.mean(sample), half_width), MARGIN)
            if verdict != "undecided":
                decided += 1
                break
    assert decided >= 168  # 84 of 100


def test_noise_floor_by_hand() -> None:
    """(t.975 + t.80) s / sqrt(n): (2.570582 + 0.919544) x 0.02 / sqrt(6) for six rounds."""
    sample = [0.02 * math.sqrt(5 / 6) * sign for sign in (1, -1, 1, -1, 1, -1)]
    assert math.sqrt(stats.variance(sample)) == pytest.approx(0.02)
    assert stats.noise_floor(sample) == pytest.approx(math.expm1(0.0284967), rel=1e-4)
