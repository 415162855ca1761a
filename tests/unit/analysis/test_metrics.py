"""The definitions of the figures, on steps whose figures can be worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from mgpubench.analysis import metrics
from mgpubench.analysis.metrics import skipped_images, summarize
from mgpubench.config.run_config import RunConfig
from mgpubench.machine.cpu_usage import CpuTime
from mgpubench.results.rank_record import Compiling, RankRecord, Remark
from mgpubench.results.schema import Figures

MakeConfig = Callable[..., RunConfig]
MakeRank = Callable[..., RankRecord]


@pytest.fixture
def figures_of(cpu_config: MakeConfig, rank_record: MakeRank) -> Callable[..., Figures]:
    """The figures of a single-process run whose measured steps took the given times."""

    def make(measured_s: list[float], **changes: object) -> Figures:
        config = cpu_config(steps=len(measured_s), warmup_steps=0, **changes)
        counted = [config.global_batch] * len(measured_s)
        return summarize(config, [rank_record(measured_s, samples=counted)])

    return make


def test_throughput_is_a_ratio_of_sums(figures_of: Callable[..., Figures]) -> None:
    # A mean of the rates 64/0.02, 64/0.05 would be 2240.
    figures = figures_of([0.02, 0.05], batch_per_device=64)
    assert figures.samples == 128
    assert figures.window_s == pytest.approx(0.07)
    assert figures.throughput_samples_per_s == pytest.approx(128 / 0.07)  # 1829


@pytest.mark.parametrize("steps", [1, 10, 1000])
def test_throughput_does_not_depend_on_the_number_of_equal_steps(
    figures_of: Callable[..., Figures], steps: int
) -> None:
    figures = figures_of([0.25] * steps, batch_per_device=8)
    assert figures.throughput_samples_per_s == 32.0
    assert figures.samples == 8 * steps


def test_dp_and_ddp_of_equal_work_and_time_have_equal_throughput(
    cpu_config: MakeConfig, rank_record: MakeRank
) -> None:
    dp = cpu_config(mode="dp", num_devices=4, batch_per_device=8, steps=2)
    ddp = cpu_config(mode="ddp", num_devices=4, batch_per_device=8, steps=2)
    assert (dp.world_size, ddp.world_size) == (1, 4)
    of_dp = summarize(dp, [rank_record([0.5, 0.5], samples=[32, 32])])
    of_ddp = summarize(
        ddp, [rank_record([0.5, 0.5], rank=rank, samples=[8, 8]) for rank in range(4)]
    )
    assert of_dp == of_ddp
    assert of_dp.samples == 64
    assert of_dp.throughput_samples_per_s == 64.0


@pytest.mark.parametrize("mode", ["dp", "ddp"])
def test_a_share_is_a_devices_and_not_a_processs(
    cpu_config: MakeConfig, rank_record: MakeRank, mode: str
) -> None:
    config = cpu_config(mode=mode, num_devices=4, batch_per_device=8, steps=2)
    counted = [config.global_batch // config.world_size] * 2
    ranks = [
        rank_record([0.5, 0.5], rank=rank, samples=counted) for rank in range(config.world_size)
    ]
    figures = summarize(config, ranks)
    assert figures.throughput_samples_per_s == 64.0
    assert figures.throughput_per_device_samples_per_s == 16.0


def test_the_slowest_rank_decides(cpu_config: MakeConfig, rank_record: MakeRank) -> None:
    config = cpu_config(mode="ddp", num_devices=3, batch_per_device=2, steps=3)
    each = {"samples": [2] * 4}
    fast = rank_record([1.0, 1.0, 1.0], (9.0,), data_waits_s=[0.0] * 4, **each)
    slow = rank_record([1.0, 4.0, 3.0], (0.1,), data_waits_s=[5.0, 0.25, 0.5, 1.0], **each)
    other = rank_record([2.0, 2.0, 2.0], (0.1,), data_waits_s=[0.0, 2.0, 2.0, 2.0], **each)
    figures = summarize(config, [fast, slow, other])
    assert figures.window_s == 8.0
    assert figures.throughput_samples_per_s == 18 / 8
    assert figures.step_time_median_s == 3.0
    assert figures.step_time_max_s == 4.0
    assert figures.data_wait_s == 1.75


def test_warm_up_is_in_no_figure(cpu_config: MakeConfig, rank_record: MakeRank) -> None:
    config = cpu_config(warmup_steps=2, steps=3)
    waits = {"data_waits_s": [0.0, 0.0, 0.1, 0.2, 0.3]}
    plain = rank_record([1.0, 2.0, 3.0], (0.0, 0.0), **waits)
    slow_start = rank_record(
        [1.0, 2.0, 3.0], (100.0, 50.0), data_waits_s=[70.0, 30.0, 0.1, 0.2, 0.3]
    )
    assert summarize(config, [plain]) == summarize(config, [slow_start])
    assert summarize(config, [plain]).step_time_max_s == 3.0
    assert summarize(config, [plain]).data_wait_s == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("q", "value"),
    [(0.0, 1.0), (0.25, 1.75), (0.5, 2.5), (0.75, 3.25), (0.9, 3.7), (1.0, 4.0)],
)
def test_quantiles_are_linear_between_order_statistics(q: float, value: float) -> None:
    assert metrics.quantile([4.0, 1.0, 3.0, 2.0], q) == pytest.approx(value)


def test_the_quantiles_of_one_value_are_that_value() -> None:
    assert [metrics.quantile([7.0], q) for q in (0.0, 0.5, 0.99, 1.0)] == [7.0] * 4


@pytest.mark.parametrize(
    ("steps", "p95", "p99"),
    [
        (1, None, None),
        (19, None, None),
        (20, 19.05, None),  # at 0.95 x 19 = 18.05, between the 19th and the 20th
        (99, 94.1, None),  # at 0.95 x 98 = 93.1
        (100, 95.05, 99.01),  # at 0.95 x 99 = 94.05 and 0.99 x 99 = 98.01
    ],
)
def test_tails_need_steps_enough(
    figures_of: Callable[..., Figures], steps: int, p95: float | None, p99: float | None
) -> None:
    figures = figures_of([float(step) for step in range(steps, 0, -1)])
    assert figures.step_time_p95_s == (p95 if p95 is None else pytest.approx(p95))
    assert figures.step_time_p99_s == (p99 if p99 is None else pytest.approx(p99))
    assert figures.step_time_median_s == (steps + 1) / 2
    assert figures.step_time_max_s == steps


def test_memory_is_joined_in_the_order_of_the_ranks(
    cpu_config: MakeConfig, rank_record: MakeRank
) -> None:
    config = cpu_config(mode="ddp", num_devices=2, steps=1)
    ranks = [
        rank_record([1.0], rank=0, peak_memory_bytes=[300]),
        rank_record([2.0], rank=1, peak_memory_bytes=[100]),
    ]
    assert summarize(config, ranks).peak_memory_bytes == "300;100"


def test_memory_of_dp_has_one_value_a_device(cpu_config: MakeConfig, rank_record: MakeRank) -> None:
    config = cpu_config(mode="dp", num_devices=3, steps=1)
    record = rank_record([1.0], peak_memory_bytes=[500, 200, 201])
    assert summarize(config, [record]).peak_memory_bytes == "500;200;201"


def test_memory_on_a_cpu_is_unknown(figures_of: Callable[..., Figures]) -> None:
    assert figures_of([1.0]).peak_memory_bytes == ""


def test_only_the_tails_are_unknown_of_a_run_of_one_step(
    figures_of: Callable[..., Figures],
) -> None:
    """C50."""
    figures = figures_of([0.5])
    unknown = {f.name for f in fields(Figures) if getattr(figures, f.name) is None}
    not_asked_for = {"skipped_images", "skipped_steps", "compile_s", "recompiles"}
    not_asked_for.add("others_cpu_share")
    not_asked_for |= {"gpu_power_mean_w", "energy_j", "samples_per_joule"}
    not_asked_for |= {"gpu_temperature_max_c", "gpu_utilization_mean"}
    assert unknown == {"step_time_p95_s", "step_time_p99_s", "step_time_change"} | not_asked_for


@pytest.mark.parametrize(
    ("wait", "window", "share"),
    [(0.5, 2.0, 0.25), (0.0, 2.0, 0.0), (None, 2.0, None), (0.5, None, None)],
)
def test_the_share_of_data_wait_is_of_the_window(
    wait: float | None, window: float | None, share: float | None
) -> None:
    assert metrics.data_wait_share(wait, window) == share


def test_the_share_of_others_is_what_was_busy_and_not_our_own(
    rank_record: Callable[..., RankRecord],
) -> None:
    """10 s of 4 cores: 30 busy, of which 12 + 11 were the ranks' and 1 this process's."""
    before = CpuTime(at_s=100.0, busy_s=500.0, num_cores=4, own_s=3.0)
    after = CpuTime(at_s=110.0, busy_s=530.0, num_cores=4, own_s=4.0)
    ranks = [rank_record([1.0], cpu_s=12.0), rank_record([1.0], cpu_s=11.0)]

    def share(**changes: Any) -> float | None:
        return metrics.others_cpu_share(before, replace(after, **changes), ranks)

    assert share() == pytest.approx(6 / 40)
    assert share(num_cores=64) == pytest.approx(6 / 640)
    assert share(busy_s=512.0) == 0.0  # rounding of the kernel's counters
    assert share(busy_s=511.9) is None  # counters that do not count even our own work
    assert share(busy_s=500.0) is None  # they stand still
    assert share(busy_s=580.0) == 1.0
    assert share(busy_s=None) is None
    assert share(at_s=100.2) is None
    assert metrics.others_cpu_share(replace(before, busy_s=None), after, ranks) is None


def test_efficiency_is_speed_up_over_devices() -> None:
    assert metrics.scaling_efficiency(4.0, 4) == 1.0
    assert metrics.scaling_efficiency(3.0, 4) == 0.75
    assert metrics.scaling_efficiency(1.0, 1) == 1.0


def test_skipped_images_are_counted_once_whoever_met_them(
    cpu_config: MakeConfig, rank_record: MakeRank
) -> None:
    bad = [Remark("bad", path) for path in ("a.jpg", "b.jpg", "c.jpg")]
    ranks = [
        rank_record([0.1], remarks=(*bad[:2], Remark("huge", "d.jpg"))),
        rank_record([0.1], remarks=tuple(bad[1:]), rank=1),
    ]
    assert skipped_images(cpu_config(data="photos"), ranks) == 3
    assert skipped_images(cpu_config(data="photos"), [rank_record([0.1])]) == 0
    assert skipped_images(cpu_config(data="synthetic"), [rank_record([0.1])]) is None


def test_compile_time_is_the_slowest_ranks_and_in_no_other_figure(
    cpu_config: MakeConfig, rank_record: MakeRank
) -> None:
    ranks = [
        rank_record(
            [0.1],
            rank=rank,
            compiling=Compiling(first_pass_s=seconds, graphs=1, recompiles=again, graph_breaks=0),
        )
        for rank, seconds, again in ((0, 18.5, 0), (1, 19.25, 2))
    ]
    figures = summarize(cpu_config(steps=1, warmup_steps=0), ranks)
    assert figures.compile_s == 19.25
    assert figures.recompiles == 2
    assert figures.window_s == 0.1


def test_what_was_not_compiled_has_no_compile_time(figures_of: Callable[..., Figures]) -> None:
    figures = figures_of([0.1])
    assert figures.compile_s is None
    assert figures.recompiles is None


# Change over the window.


def ramp(change: float, steps: int = 80) -> list[float]:
    """Step times that rise evenly, so that a line through them gains `change` of their mean."""
    # Means of 8 batches, m_i = 1 + change * (i - 3.5) / 7: first to last is `change` exactly.
    size = steps // 8
    return [0.1 * (1 + change * (i - 3.5) / 7) for i in range(8) for _ in range(size)]


@pytest.mark.parametrize("change", [0.03, -0.03, 0.0, 0.5])
def test_the_change_of_the_step_time_is_that_of_a_line_over_the_window(change: float) -> None:
    assert metrics.step_time_change(ramp(change)) == pytest.approx(change, abs=1e-12)


def test_the_change_of_the_step_time_is_fitted_to_means_of_eight_batches() -> None:
    times = [0.1 + 0.001 * i + 0.004 * (i * i % 7) for i in range(80)]
    means = np.array(times).reshape(8, 10).mean(axis=1)
    slope = np.polyfit(range(8), means, 1)[0]
    assert metrics.step_time_change(times) == pytest.approx(slope * 7 / means.mean())


def test_the_change_of_the_step_time_leaves_out_a_remainder_at_the_start() -> None:
    times = ramp(0.03, steps=48)
    assert metrics.step_time_change([5.0] * 7 + times) == metrics.step_time_change(times)


def test_the_change_of_the_step_time_is_unknown_below_40_steps(
    figures_of: Callable[..., Figures],
) -> None:
    assert metrics.step_time_change([0.1] * 39) is None
    assert metrics.step_time_change([0.1] * 40) == pytest.approx(0.0, abs=1e-12)
    assert figures_of([0.1] * 39).step_time_change is None
    assert figures_of(ramp(0.02)).step_time_change == pytest.approx(0.02)


def test_the_change_of_the_step_time_is_the_slowest_ranks_and_without_warm_up(
    cpu_config: MakeConfig, rank_record: MakeRank
) -> None:
    config = cpu_config(mode="ddp", num_devices=2, steps=80, warmup_steps=2)
    ranks = [
        rank_record(ramp(0.05), (9.0, 7.0), rank=0),
        rank_record([1.01 * time_s for time_s in ramp(-0.02)], (9.0, 7.0), rank=1),
    ]
    assert summarize(config, ranks).step_time_change == pytest.approx(-0.02)


# Stalled steps.


def test_time_lost_in_a_stalled_step_is_what_it_took_beyond_the_median() -> None:
    """99 steps of about 100 ms, and one of 10 s: 9.9 s of 19.9 s."""
    # Half of the logarithms are 0.001 above the centre and half below, so MAD is 0.001.
    times = [0.1 * math.exp(0.001 * (-1) ** i) for i in range(98)] + [0.1, 10.0]
    lost = 10.0 - 0.1
    assert metrics.stalled_share(times) == pytest.approx(lost / sum(times), rel=1e-4)


def test_a_step_stalls_beyond_five_deviations_of_the_logarithms() -> None:
    """MAD 0.01 makes a deviation 0.014826, and five of them a factor of 1.0769."""
    typical = [0.1 * math.exp(0.01 * sign) for sign in (*[-1] * 21, 0, *[1] * 20)]
    limit = math.exp(5 * 1.4826 * 0.01)
    assert limit == pytest.approx(1.0769, rel=1e-4)
    assert metrics.stalled_share([*typical, 0.1 * (limit - 0.0001)]) == 0.0
    longest = 0.1 * (limit + 0.0001)
    share = metrics.stalled_share([*typical, longest])
    assert share == pytest.approx((longest - 0.1) / (sum(typical) + longest))


def test_a_step_that_was_far_too_fast_does_not_stall() -> None:
    assert metrics.stalled_share([0.1, 0.1001] * 20 + [0.0001]) == 0.0


def test_stalls_add_up() -> None:
    times = [0.1 * math.exp(0.001 * (-1) ** i) for i in range(97)] + [0.1, 0.3, 0.5]
    assert metrics.stalled_share(times) == pytest.approx((0.2 + 0.4) / sum(times), rel=1e-3)


def test_without_any_noise_every_longer_step_stalls() -> None:
    assert metrics.stalled_share([0.1] * 99 + [0.2]) == pytest.approx(0.1 / 10.1)
    assert metrics.stalled_share([0.1] * 100) == 0.0


def test_stalls_are_unknown_below_20_steps() -> None:
    assert metrics.stalled_share([0.1] * 18 + [9.0]) is None
    assert metrics.stalled_share([0.1] * 19 + [9.0]) is not None


def test_the_warm_up_is_all_training_before_the_window(
    cpu_config: MakeConfig, rank_record: MakeRank
) -> None:
    """2.25 s of spin-up and steps of 0.5 and 0.25 s, on the rank with the longer window."""
    config = cpu_config(mode="ddp", num_devices=2, steps=2, warmup_steps=2)
    ranks = [
        rank_record([0.1, 0.1], (0.5, 0.25), spin_up_s=9.0),
        rank_record([0.1, 0.2], (0.5, 0.25), spin_up_s=2.25, rank=1),
    ]
    assert metrics.warmup_s(ranks, config.steps) == pytest.approx(3.0)
