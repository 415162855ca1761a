"""How often findings are false alarms, and how often they find what they are for."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from mgpubench.analysis.findings.steadiness import is_steady
from mgpubench.analysis.findings.timing import STALL_LIMIT
from mgpubench.analysis.metrics import stalled_share, step_time_change
from tests.conftest import make_run_record as run

STEPS = 100
STEP_S = 0.1

Noise = Callable[[random.Random], Iterator[float]]
"""An endless series of step times in seconds."""


def normal(rng: random.Random, spread: float = 0.02) -> Iterator[float]:
    while True:
        yield STEP_S * (1 + rng.gauss(0, spread))


def correlated(rng: random.Random, spread: float = 0.02, memory: float = 0.7) -> Iterator[float]:
    """AR(1) in the logarithm: a slow step is followed by slow steps."""
    value = rng.gauss(0, spread)
    while True:
        yield STEP_S * math.exp(value)
        value = memory * value + rng.gauss(0, spread * math.sqrt(1 - memory**2))


def skewed(rng: random.Random, spread: float = 0.3) -> Iterator[float]:
    """Lognormal: the slowest of 100 steps takes twice the median."""
    while True:
        yield STEP_S * math.exp(rng.gauss(0, spread))


def skewed_above_a_least_time(rng: random.Random) -> Iterator[float]:
    """Nine tenths are always the same, and the rest is lognormal."""
    while True:
        yield STEP_S * (0.9 + 0.1 * math.exp(rng.gauss(0, 0.5)))


NOISES: dict[str, Noise] = {
    "normal 2 %": normal,
    "normal 10 %": partial(normal, spread=0.1),
    "AR(0.7)": correlated,
    "AR(0.95) 5 %": partial(correlated, spread=0.05, memory=0.95),
    "lognormal 10 %": partial(skewed, spread=0.1),
    "lognormal 30 %": skewed,
    "lognormal above a least time": skewed_above_a_least_time,
}


def step_times(noise: Noise, rng: random.Random, steps: int = STEPS) -> list[float]:
    times = noise(rng)
    return [next(times) for _ in range(steps)]


def has_stalls(times_s: list[float]) -> bool:
    share = stalled_share(times_s)
    return share is not None and share > STALL_LIMIT


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_noise_is_rarely_taken_for_stalls(noise: Noise) -> None:
    rng = random.Random(1)
    alarms = sum(has_stalls(step_times(noise, rng)) for _ in range(1000))
    assert alarms / 1000 <= 0.025


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_one_step_of_a_hundred_medians_is_always_found(noise: Noise) -> None:
    """It halves the throughput, and neither the median nor p99 shows it."""
    rng = random.Random(2)
    for _ in range(200):
        times = step_times(noise, rng)
        times[rng.randrange(STEPS)] = 100 * STEP_S
        assert has_stalls(times)


@pytest.mark.parametrize("medians", [3, 5, 20])
def test_shorter_stalls_are_found_too(medians: int) -> None:
    """From 2 % of the window on: three medians in 100 steps."""
    rng = random.Random(3)
    found = 0
    for _ in range(200):
        times = step_times(correlated, rng)
        times[rng.randrange(STEPS)] = medians * STEP_S
        found += has_stalls(times)
    assert found == 200


def with_drift(noise: Noise, change: float, rng: random.Random) -> list[float]:
    """Step times that change evenly by this share over the window."""
    return [
        time_s * (1 + change * (place / (STEPS - 1) - 0.5))
        for place, time_s in enumerate(step_times(noise, rng))
    ]


def alarms_over_six_runs(noise: Noise, change: float, times: int) -> float:
    rng = random.Random(4)
    alarms = 0
    for _ in range(times):
        changes = [step_time_change(with_drift(noise, change, rng)) for _ in range(6)]
        alarms += not is_steady([run("ddp", step_time_change=each) for each in changes])
    return alarms / times


@pytest.mark.parametrize("name", ["normal 2 %", "AR(0.7)", "AR(0.95) 5 %", "lognormal 30 %"])
def test_noise_is_rarely_taken_for_drift(name: str) -> None:
    """A single run would be called not steady in 9 to 24 of 100."""
    assert alarms_over_six_runs(NOISES[name], 0.0, 600) <= 0.015 + 0.005


@pytest.mark.parametrize("change", [0.03, -0.03])
def test_a_drift_of_3_percent_is_found_in_most_rows(change: float) -> None:
    assert alarms_over_six_runs(partial(correlated, spread=0.01), change, 200) > 0.95
    assert alarms_over_six_runs(correlated, change, 200) > 0.5
    assert alarms_over_six_runs(normal, change, 200) > 0.95


def test_a_drift_within_1_percent_is_not_worth_a_finding() -> None:
    """However surely it is there."""
    assert alarms_over_six_runs(partial(normal, spread=0.001), 0.009, 100) == 0.0
    assert alarms_over_six_runs(partial(normal, spread=0.001), 0.015, 100) == 1.0
