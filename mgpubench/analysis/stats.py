"""The numbers behind a verdict: intervals for ratios of throughputs, on the log scale.

Logarithms make a/b and b/a symmetric and the noise multiplicative. One run is one observation: the
steps of a run are correlated, and never the basis of an interval. docs/statistics.md says how often
the intervals hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

ERROR_RATE = 0.05
"""The share of families of verdicts that may contain a wrong one."""

MIN_ROUNDS = 5
"""Paired rounds below which one session gives no interval (t factor 2.78 at 5, 4.30 at 3)."""

MIN_SESSIONS = 3
"""Sessions from which on their means give an interval."""

MAX_ROUNDS = 10_000
"""If more rounds than this are needed, the honest answer is that no number of rounds will do."""

SPREAD_LIMIT = 0.8
"""A hint assumes the upper limit of the spread at this confidence, so that most who follow it get a
verdict."""

POWER = 0.8
"""The noise floor is the difference that is found with this probability."""

DISAGREEMENT = 0.01
"""Sessions disagree if Welch's one-way test would give such means by chance this rarely."""

Verdict = Literal["faster", "slower", "equivalent", "undecided"]
Interval = tuple[float, float]


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm. All values must be positive; their order changes no digit."""
    # Relative to one of them, so that the mean of equal values is exactly that value.
    first = min(values)
    return first * math.exp(mean([math.log(value / first) for value in values]))


def mean(values: Sequence[float]) -> float:
    """The mean, with a sum that does not depend on the order."""
    return math.fsum(values) / len(values)


def log_mean(values: Sequence[float]) -> float:
    """The mean of the logarithms."""
    return mean([math.log(value) for value in values])


def variance(values: Sequence[float]) -> float:
    """Sample variance (n - 1 in the denominator); needs two values."""
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def t_half_width(spread: float, n: int, error_rate: float) -> float:
    """Half the width of Student's t interval for the mean of n values, at n - 1 degrees of freedom.

    `spread` is their standard deviation.
    """
    if spread == 0:
        return 0.0
    return student_t_quantile(1 - error_rate / 2, n - 1) * spread / math.sqrt(n)


def sequence_half_width(spread: float, n: int, error_rate: float) -> float:
    """Half the width at n values of a confidence sequence, which holds at all n at the same time.

    So it may be looked at after every round, and rounds may be added until it decides. It is the
    mixture of t likelihood ratios over a normal prior for the effect, in units of the spread, with
    variance 1 (Lai, Annals of Statistics 1976; Wang and Ramdas, arXiv 2310.03722). Infinite until n
    is large enough.
    """
    odds = (math.sqrt(1 + n) / error_rate) ** (2 / n)
    if n < MIN_ROUNDS or odds >= 1 + n:
        return math.inf
    if spread == 0:
        return 0.0
    return spread / math.sqrt(n) * math.sqrt((n - 1) * (odds - 1) / (1 - odds / (1 + n)))


def welch_half_width(first: Sequence[float], second: Sequence[float], error_rate: float) -> float:
    """Half the width of Welch's t interval for the difference of two means.

    Degrees of freedom by Welch and Satterthwaite. Both sides need two values.
    """
    parts = [variance(side) / len(side) for side in (first, second)]
    total = math.fsum(parts)
    if total == 0:
        return 0.0
    freedom = total**2 / math.fsum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (first, second), strict=True)
    )
    return student_t_quantile(1 - error_rate / 2, freedom) * math.sqrt(total)


def means_differ_by_chance(samples: Sequence[Sequence[float]]) -> float | None:
    """The p-value of Welch's one-way test for equal means (Welch, Biometrika 1951).

    None if a sample has fewer than two values or no spread.
    """
    if len(samples) < 2 or any(len(sample) < 2 or variance(sample) == 0 for sample in samples):
        return None
    from scipy.special import fdtrc

    statistic, freedom = _welch_statistic(samples)
    return float(fdtrc(len(samples) - 1, freedom, statistic))


def _welch_statistic(samples: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Welch's F, and the degrees of freedom of its denominator."""
    k = len(samples)
    weights = [len(sample) / variance(sample) for sample in samples]
    total = math.fsum(weights)
    means = [mean(sample) for sample in samples]
    centre = math.fsum(w * m for w, m in zip(weights, means, strict=True)) / total
    between = math.fsum(w * (m - centre) ** 2 for w, m in zip(weights, means, strict=True))
    unequal = math.fsum(
        (1 - w / total) ** 2 / (len(sample) - 1) for w, sample in zip(weights, samples, strict=True)
    )
    statistic = between / (k - 1) / (1 + 2 * (k - 2) / (k**2 - 1) * unequal)
    return statistic, (k**2 - 1) / (3 * unequal)


def to_ratio(log_ratio: float) -> float:
    """A ratio from its logarithm."""
    return math.exp(log_ratio)


def to_interval(centre: float, half_width: float) -> Interval | None:
    """The interval of a ratio from a mean and a half-width of logarithms; None if infinite."""
    if math.isinf(half_width):
        return None
    return math.exp(centre - half_width), math.exp(centre + half_width)


def judge(interval: Interval | None, margin: float) -> Verdict:
    """The verdict on a ratio, from its interval and the relative difference that counts.

    `equivalent` inside 1/(1+margin)..1+margin, even if the interval excludes 1: the difference is
    then real, and too small to count.
    """
    if interval is None:
        return "undecided"
    low, high = interval
    if 1 / (1 + margin) < low and high < 1 + margin:
        return "equivalent"
    if low > 1:
        return "faster"
    if high < 1:
        return "slower"
    return "undecided"


def rounds_to_decide(logs: Sequence[float], margin: float, error_rate: float) -> int | None:
    """Rounds after which a session that goes on until it is decided would most likely end.

    Cautious in both respects: the spread is the upper 80 % limit of what was seen, and the mean
    lies half a standard error nearer to the hardest case, which is halfway between 1 and the
    margin. None if it is more than MAX_ROUNDS. `logs` are two or more log ratios.
    """
    from scipy.special import chdtri

    freedom = len(logs) - 1
    spread = math.sqrt(variance(logs))
    cautious = spread * math.sqrt(freedom / float(chdtri(freedom, SPREAD_LIMIT)))
    hardest = math.log1p(margin) / 2
    distance = abs(mean(logs)) - hardest
    nearer = max(0.0, abs(distance) - spread / math.sqrt(len(logs)) / 2)
    return _first_below(hardest + nearer, cautious, len(logs) + 1, error_rate)


def _first_below(target: float, spread: float, low: int, error_rate: float) -> int | None:
    """The first n from `low` on at which a confidence sequence is narrower than `target`.

    None if it is more than MAX_ROUNDS.
    """
    high = MAX_ROUNDS
    if sequence_half_width(spread, high, error_rate) >= target:
        return None
    while low < high:
        middle = (low + high) // 2
        if sequence_half_width(spread, middle, error_rate) < target:
            high = middle
        else:
            low = middle + 1
    return low


def noise_floor(logs: Sequence[float]) -> float:
    """The relative difference that as many rounds with this spread find in 80 of 100 cases.

    (t.975 + t.80) s / sqrt(n), as a share of one.
    """
    freedom = len(logs) - 1
    factor = student_t_quantile(1 - ERROR_RATE / 2, freedom) + student_t_quantile(POWER, freedom)
    return math.expm1(factor * math.sqrt(variance(logs) / len(logs)))


def student_t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """The quantile of Student's t distribution."""
    # Inside a function: scipy.special takes 0.1 s to load, which --help need not pay.
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, probability))
