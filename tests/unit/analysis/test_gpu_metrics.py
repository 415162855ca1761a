"""The figures of the GPUs, computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mgpubench.analysis.compare import compare
from mgpubench.analysis.cost import Prices, add_costs, cost_per_million_samples
from mgpubench.analysis.gpu_metrics import (
    Window,
    add_gpu_figures,
    energy_j,
    pooled_samples_per_joule,
    temperature_max_c,
    throttle_reasons,
    utilization,
)
from mgpubench.results.rank_record import RankRecord
from mgpubench.results.schema import Figures
from mgpubench.results.telemetry import Sample
from tests.conftest import make_run_record


def sample(clock_s: float, **figures: Any) -> Sample:
    empty = {"device": "GPU-0", "error": "", "clock_reasons": ""}
    unknown: dict[str, Any] = dict.fromkeys(Sample._fields)
    return Sample(**{**unknown, **empty, "clock_s": clock_s, **figures})


def counted(*pairs: tuple[float, float]) -> list[Sample]:
    """Samples of the energy counter."""
    return [sample(clock_s, energy_j=energy) for clock_s, energy in pairs]


def test_energy_is_the_counter_between_both_ends_of_the_window() -> None:
    """100 W up to 11 s, then 300 W: 0.5 s x 100 W + 1 s x 300 W + 0.5 s x 300 W."""
    trace = counted((10, 1000), (11, 1100), (12, 1400), (13, 1700))
    assert energy_j(trace, Window(10.5, 12.5)) == pytest.approx(50 + 300 + 150)


def test_energy_at_the_moment_of_a_sample() -> None:
    trace = counted((10, 1000), (11, 1100), (12, 1400), (13, 1700))
    assert energy_j(trace, Window(10, 12)) == pytest.approx(400)
    assert energy_j(trace, Window(11, 13)) == pytest.approx(600)


def test_without_a_counter_energy_is_the_integral_of_the_power() -> None:
    """From 100 W to 300 W on a straight line over 2 s: 200 W in the mean."""
    trace = [sample(0, power_w=100.0), sample(2, power_w=300.0), sample(4, power_w=300.0)]
    assert energy_j(trace, Window(0, 2)) == pytest.approx(400)
    assert energy_j(trace, Window(2, 3)) == pytest.approx(300)
    assert energy_j(trace, Window(2, 4)) == pytest.approx(600)


@pytest.mark.parametrize(
    "trace",
    [
        [],
        counted((10.6, 1000), (12, 1400), (13, 1700)),  # no sample before the window
        counted((10, 1000), (11, 1100), (12.4, 1400)),  # none after it
        counted((10, 1000), (12, 1400)),
        counted((10, 1000), (16, 1400)),  # too far apart
        [sample(10), sample(13)],  # neither counter nor power
        counted((10, 1000), (11, 0), (13, 1)),  # the driver was loaded again
    ],
)
def test_energy_is_unknown_if_the_samples_do_not_hold_the_window(trace: list[Sample]) -> None:
    assert energy_j(trace, Window(10.5, 12.5)) is None


def test_use_and_heat_are_those_of_the_samples_in_the_window() -> None:
    trace = [
        sample(9, utilization=0.1, temperature_c=90),
        sample(10, utilization=0.8, temperature_c=60),
        sample(11, utilization=1.0, temperature_c=64),
        sample(12),
        sample(13, utilization=0.2, temperature_c=80),
    ]
    assert utilization(trace, Window(10, 12)) == pytest.approx(0.9)
    assert temperature_max_c(trace, Window(10, 12)) == 64
    assert utilization(trace, Window(11.5, 12.5)) is None
    assert temperature_max_c(trace, Window(11.5, 12.5)) is None


def test_what_throttled_any_gpu_in_the_window() -> None:
    first = [
        sample(10, clock_reasons="idle"),
        sample(11, clock_reasons="power-limit;clocks-setting"),
    ]
    second = [sample(11, clock_reasons="heat"), sample(13, clock_reasons="power-brake")]
    assert throttle_reasons([first, second], Window(10, 12)) == ["power-limit", "heat"]


def test_the_figures_of_two_gpus(rank_record: Callable[..., RankRecord]) -> None:
    """Window from 10 to 14 s. 400 J and 800 J are 300 W in the mean of both, for 600 samples."""
    ranks = [rank_record([1.0] * 4, window_ended_s=14.0)]
    traces = [
        [sample(10, energy_j=0.0, utilization=0.9, temperature_c=60),
         sample(14, energy_j=400.0, utilization=0.7, temperature_c=70)],
        [sample(10, energy_j=100.0, utilization=0.5, temperature_c=50, clock_reasons="heat"),
         sample(14, energy_j=900.0, utilization=0.5, temperature_c=55)],
    ]  # fmt: skip
    figures = add_gpu_figures(Figures(samples=600), traces, ranks)
    assert figures.energy_j == pytest.approx(1200)
    assert figures.gpu_power_mean_w == pytest.approx(150)
    assert figures.samples_per_joule == pytest.approx(0.5)
    assert figures.gpu_temperature_max_c == 70
    assert figures.gpu_utilization_mean == pytest.approx(0.65)
    assert figures.gpu_utilization_per_device == "0.800;0.500"
    assert figures.throttle_reasons == "heat"
    assert figures.samples == 600


def test_a_figure_is_unknown_if_one_gpu_does_not_have_it(
    rank_record: Callable[..., RankRecord],
) -> None:
    ranks = [rank_record([1.0] * 4, window_ended_s=14.0)]
    whole = [sample(10, energy_j=0.0, utilization=0.9), sample(14, energy_j=400.0, utilization=0.9)]
    blind = [sample(10, temperature_c=60), sample(14, temperature_c=61)]
    figures = add_gpu_figures(Figures(samples=600), [whole, blind], ranks)
    assert (figures.energy_j, figures.gpu_power_mean_w, figures.samples_per_joule) == (None,) * 3
    assert (figures.gpu_utilization_mean, figures.gpu_temperature_max_c) == (None, None)
    assert figures.gpu_utilization_per_device == "0.900;"


@pytest.mark.parametrize("changes", [{"window_ended_s": None}, {"window_s": 1.9}])
def test_a_short_window_and_one_without_a_place_in_time_have_no_such_figures(
    rank_record: Callable[..., RankRecord], changes: dict[str, Any]
) -> None:
    ranks = [rank_record([1.0] * 4, **{"window_ended_s": 14.0, **changes})]
    trace = counted((9, 0), (15, 100))
    assert add_gpu_figures(Figures(samples=4), [trace], ranks) == Figures(samples=4)


def test_without_a_trace_of_each_gpu_there_are_no_such_figures(
    rank_record: Callable[..., RankRecord],
) -> None:
    ranks = [rank_record([1.0] * 4, window_ended_s=14.0)]
    trace = counted((10, 0), (14, 100))
    assert add_gpu_figures(Figures(), [trace, None], ranks) == Figures()
    assert add_gpu_figures(Figures(), [], ranks) == Figures()


def test_the_price_of_a_million_samples() -> None:
    """1000 samples/s are 1000 s for a million: 1/3.6 h of 2 GPUs at 3.60 each."""
    hours = Prices(per_hour=3.6)
    assert cost_per_million_samples(hours, 2, 1000.0, None) == pytest.approx(2.0)
    energy = Prices(per_kwh=0.36)
    # 0.5 samples/J are 2,000,000 J for a million, which are 0.5556 kWh.
    assert cost_per_million_samples(energy, 2, None, 0.5) == pytest.approx(0.2)
    both = Prices(per_hour=3.6, per_kwh=0.36)
    assert cost_per_million_samples(both, 2, 1000.0, 0.5) == pytest.approx(2.2)
    assert cost_per_million_samples(both, 2, 1000.0, None) is None
    assert cost_per_million_samples(hours, 2, None, 0.5) is None


def test_runs_are_pooled_by_their_sums() -> None:
    """300 samples for 200 J: not the mean of 2 and 1."""
    runs = [
        make_run_record(samples=200, energy_j=100.0),
        make_run_record(samples=100, energy_j=100.0),
        make_run_record(samples=900),
    ]
    assert pooled_samples_per_joule(runs) == pytest.approx(1.5)
    assert pooled_samples_per_joule(runs[2:]) is None


def test_rows_have_costs_but_for_those_of_a_cpu() -> None:
    """100 samples/s are 10,000 s for a million: 2.778 h of 1 and of 2 GPUs."""
    runs = [make_run_record("single"), make_run_record("ddp")]
    rows = add_costs(compare(runs, None, 0.02), Prices(per_hour=0.36))
    assert [row.cost_per_million_samples for row in rows] == pytest.approx([1.0, 2.0])
    on_cpu = [make_run_record("single", device_type="cpu")]
    (row,) = add_costs(compare(on_cpu, None, 0.02), Prices(per_hour=0.36))
    assert row.cost_per_million_samples is None
