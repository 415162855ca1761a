"""Figures of collectives, computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mgpubench.analysis.collectives import fits, line_through, size_rows
from mgpubench.analysis.metrics import (
    algorithm_bandwidth,
    bus_bandwidth,
    bus_factor,
    call_times_s,
    summarize_size,
)
from mgpubench.analysis.stats import student_t_quantile
from mgpubench.results.comm import CommFigures, CommRecord


def record(run: int = 1, time_s: float | None = 1.0, **changes: Any) -> CommRecord:
    values: dict[str, Any] = {
        "schema_version": 1,
        "run_id": f"s-{run}",
        "round": run,
        "position": run,
        "status": "ok",
        "operation": "all-reduce",
        "size_bytes": 1000,
        "num_devices": 4,
        "device_type": "cpu",
        "time_median_s": time_s,
    }
    return CommRecord(**{**values, **changes})


def test_the_slowest_rank_of_each_block_counts() -> None:
    assert call_times_s([[2.0, 6.0, 1.0], [4.0, 5.0, 1.0]], calls=2) == [2.0, 3.0, 0.5]


def test_algorithm_bandwidth_is_size_by_time() -> None:
    assert algorithm_bandwidth(3_000, 1.5e-3) == 2_000_000


@pytest.mark.parametrize(
    ("operation", "factor"),
    [
        ("all-reduce", 1.5),
        ("all-gather", 0.75),
        ("reduce-scatter", 0.75),
        ("all-to-all", 0.75),
        ("gather", 0.75),
        ("scatter", 0.75),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("send-recv", 1.0),
    ],
)
def test_bus_bandwidth_on_four_devices(operation: Any, factor: float) -> None:
    assert bus_factor(operation, 4) == factor
    assert bus_bandwidth(operation, 100.0, 4) == 100 * factor


def test_an_all_reduce_of_two_has_equal_bandwidths() -> None:
    assert bus_factor("all-reduce", 2) == 1


def test_the_figures_of_a_size() -> None:
    assert summarize_size("all-reduce", 4, 6_000, [3e-3, 1e-3, 2e-3]) == CommFigures(
        time_median_s=2e-3,
        time_min_s=1e-3,
        time_max_s=3e-3,
        algorithm_bandwidth_bytes_per_s=3_000_000,
        bus_bandwidth_bytes_per_s=4_500_000,
    )


def test_a_barrier_has_no_bandwidth() -> None:
    assert summarize_size("barrier", 4, 0, [2.0]) == CommFigures(
        time_median_s=2.0, time_min_s=2.0, time_max_s=2.0
    )


def test_rows_are_in_the_order_of_operations_devices_and_sizes() -> None:
    rows = size_rows(
        [
            record(operation="barrier", size_bytes=None),
            record(num_devices=8),
            record(size_bytes=2000),
            record(),
            record(operation="broadcast"),
            record(status="failed", time_s=None, size_bytes=5),
        ]
    )
    assert [(row.operation, row.num_devices, row.size_bytes) for row in rows] == [
        ("broadcast", 4, 1000),
        ("all-reduce", 4, 1000),
        ("all-reduce", 4, 2000),
        ("all-reduce", 8, 1000),
        ("barrier", 4, None),
    ]


def test_the_time_of_a_row_is_a_geometric_mean_without_interval_below_five_rounds() -> None:
    (row,) = size_rows([record(1, 1e-3), record(2, 4e-3)])
    assert (row.runs, row.time_ci, row.bus_bandwidth_ci) == (2, None, None)
    assert row.time_s == pytest.approx(2e-3)
    assert row.algorithm_bandwidth == pytest.approx(500_000)
    assert row.bus_bandwidth == pytest.approx(750_000)


def test_the_interval_is_students_t_on_logarithms() -> None:
    times_s = [math.exp(value) for value in (-2.0, -1.0, 0.0, 1.0, 2.0)]
    (row,) = size_rows([record(run, time_s) for run, time_s in enumerate(times_s, start=1)])
    half = student_t_quantile(0.975, 4) * math.sqrt(2.5) / math.sqrt(5)
    assert row.time_ci == pytest.approx((math.exp(-half), math.exp(half)))
    assert row.bus_bandwidth_ci == pytest.approx((1500 * math.exp(-half), 1500 * math.exp(half)))


def test_a_line_is_found_exactly() -> None:
    line = line_through([(size, 2e-3 + size / 1e6) for size in (1_000, 10_000, 100_000)])
    assert line == pytest.approx((2e-3, 1e-6))


def test_the_distances_from_a_line_are_relative() -> None:
    """By hand: sizes 1, 2, 3 and times 1, 2, 4 have the weights 1, 1/4 and 1/16."""
    # Sums of w, wx, wt, wxx, wxt: 21/16, 27/16, 28/16, 41/16, 44/16.
    slope = (21 * 44 - 27 * 28) / (21 * 41 - 27 * 27)
    assert line_through([(1, 1.0), (2, 2.0), (3, 4.0)]) == pytest.approx(
        ((28 - slope * 27) / 21, slope)
    )


@pytest.mark.parametrize(
    "points",
    [
        [(1, 1.0), (2, 2.0)],
        [(1, 1.0), (2, 2.0), (2, 2.1)],
        [(1, 3.0), (2, 2.0), (3, 1.0)],
    ],
    ids=["two points", "two sizes", "falling times"],
)
def test_where_there_is_no_line(points: list[tuple[int, float]]) -> None:
    assert line_through(points) is None


def lines(latencies_s: list[float], bandwidth: float) -> list[CommRecord]:
    """Runs whose times lie on a line each."""
    return [
        record(run, latency_s + size / bandwidth, size_bytes=size)
        for run, latency_s in enumerate(latencies_s, start=1)
        for size in (1_000, 10_000, 100_000)
    ]


def test_a_fit_is_the_mean_of_the_lines_of_the_runs() -> None:
    (fit,) = fits(lines([1e-3, 2e-3, 3e-3, 4e-3, 5e-3], 1e6))
    assert (fit.operation, fit.num_devices, fit.runs) == ("all-reduce", 4, 5)
    assert fit.latency_s == pytest.approx(3e-3)
    half = student_t_quantile(0.975, 4) * math.sqrt(2.5e-6) / math.sqrt(5)
    assert fit.latency_ci == pytest.approx((3e-3 - half, 3e-3 + half))
    assert fit.bandwidth_bytes_per_s == pytest.approx(1e6)
    assert fit.bandwidth_ci == pytest.approx((1e6, 1e6))


def test_the_misfit_is_the_farthest_size() -> None:
    rows = [*lines([1e-3], 1e6)]
    (fit,) = fits(rows)
    assert fit.misfit == pytest.approx(0, abs=1e-9)
    assert (fit.latency_ci, fit.bandwidth_ci) == (None, None)
    bent = [*rows[:2], record(1, 0.202, size_bytes=100_000)]
    (fit,) = fits(bent)
    errors = [
        abs((fit.latency_s + (row.size_bytes or 0) / fit.bandwidth_bytes_per_s) / time_s - 1)
        for row, time_s in zip(bent, (0.002, 0.011, 0.202), strict=True)
    ]
    assert fit.misfit == pytest.approx(max(errors))
    assert fit.misfit > 0.1


def test_no_fit_if_a_run_has_no_line() -> None:
    assert fits([*lines([1e-3], 1e6), record(2, size_bytes=1_000)]) == []
    assert fits([record(operation="barrier", size_bytes=None)]) == []
