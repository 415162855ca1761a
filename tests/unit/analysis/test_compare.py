"""The rows of the table: their figures, what they are compared with, and their findings."""

import math
import random
from dataclasses import replace

import pytest
from scipy import stats as scipy_stats

from mgpubench.analysis.compare import compare
from mgpubench.analysis.row import parse_baseline
from tests.conftest import make_run_record as run

MARGIN = 0.02


def failed(mode, **changes):
    return run(mode, None, status="failed", **changes)


def rounds(mode, throughputs, **changes):
    return [run(mode, t, round=i + 1, **changes) for i, t in enumerate(throughputs)]


def rows_of(records, baseline=None):
    return compare(records, parse_baseline(baseline) if baseline else None, MARGIN)


def by_mode(records, baseline=None):
    return {row.mode: row for row in rows_of(records, baseline)}


SINGLE = [100.0, 104.0, 97.0, 101.0, 99.0]
DP = [150.0, 157.0, 145.0, 152.0, 148.0]
DDP = [190.0, 198.5, 184.0, 192.0, 188.5]
THREE_MODES = rounds("single", SINGLE) + rounds("dp", DP) + rounds("ddp", DDP)


def test_throughput_is_the_geometric_mean_with_students_interval():
    row = by_mode(THREE_MODES)["dp"]
    logs = [math.log(throughput) for throughput in DP]
    low, high = scipy_stats.t.interval(
        0.95, 4, loc=math.fsum(logs) / 5, scale=scipy_stats.sem(logs)
    )
    assert row.throughput_samples_per_s == pytest.approx(scipy_stats.gmean(DP))
    assert row.throughput_ci == pytest.approx((math.exp(low), math.exp(high)))
    assert (row.runs, row.failed) == (5, 0)


def test_throughput_of_several_sessions_has_an_interval_over_their_means():
    """Rounds of one session are more alike than those of different ones."""
    sessions = [[t * scale for t in DP] for scale in (1.0, 1.1, 0.95)]
    records = [
        record
        for number, rates in enumerate(sessions)
        for record in rounds("dp", rates, session_id=f"s{number}")
    ]
    means = [math.log(scipy_stats.gmean(rates)) for rates in sessions]
    low, high = scipy_stats.t.interval(
        0.95, 2, loc=math.fsum(means) / 3, scale=scipy_stats.sem(means)
    )
    row = by_mode(records)["dp"]
    assert row.throughput_ci == pytest.approx((math.exp(low), math.exp(high)))
    assert by_mode(records[:10])["dp"].throughput_ci is None


def test_fewer_than_five_runs_have_no_interval_of_their_throughput():
    assert by_mode(rounds("dp", DP[:4]))["dp"].throughput_ci is None


def test_rounds_in_common_are_compared_in_pairs():
    versus = by_mode(THREE_MODES)["ddp"].versus_dp
    test = scipy_stats.ttest_rel([math.log(x) for x in DDP], [math.log(x) for x in DP])
    low, high = map(math.exp, test.confidence_interval(0.95))
    assert versus.ratio == pytest.approx(scipy_stats.gmean(DDP) / scipy_stats.gmean(DP))
    assert versus.interval == pytest.approx((low, high))
    assert (versus.baseline, versus.comparison.pairs) == ("dp", 5)
    assert versus.comparison.paired is True
    assert (versus.verdict, versus.rounds_needed) == ("faster", None)


@pytest.mark.parametrize("apart", [{"session_id": "s2"}, {"sitting": 2}])
def test_without_common_rounds_of_one_sitting_there_is_a_ratio_and_no_verdict(apart):
    records = rounds("dp", DP) + rounds("ddp", DDP, **apart)
    versus = by_mode(records)["ddp"].versus_baseline
    assert (versus.baseline, versus.comparison.method, versus.comparison.pairs) == (
        *("dp", "unpaired", 0),
    )
    assert versus.ratio == pytest.approx(scipy_stats.gmean(DDP) / scipy_stats.gmean(DP))
    assert (versus.interval, versus.verdict, versus.rounds_needed) == (None, None, None)


def test_rounds_of_a_later_sitting_are_paired_with_each_other():
    """The first three rounds are from the first sitting, and two from the second."""
    records = [
        run(mode, t, round=number, sitting=1 + (number > 3))
        for mode, rates in (("dp", DP), ("ddp", DDP))
        for number, t in enumerate(rates, start=1)
    ]
    comparison = by_mode(records)["ddp"].versus_dp.comparison
    assert (comparison.pairs, comparison.paired, comparison.verdict) == (5, True, "faster")


def test_an_unknown_sitting_is_the_first_one():
    records = rounds("dp", DP, sitting=1) + rounds("ddp", DDP)
    assert by_mode(records)["ddp"].versus_dp.comparison.pairs == 5


@pytest.mark.parametrize("added", [0, 3])
def test_rounds_that_may_have_been_added_are_judged_by_the_sequence(added):
    """For ever, and if only one of the sides has them."""
    fixed = by_mode(THREE_MODES)["ddp"].versus_dp
    for which in ("dp", "ddp"):
        records = [
            replace(record, rounds_added=added) if record.mode == which else record
            for record in THREE_MODES
        ]
        added_to = by_mode(records)["ddp"].versus_dp
        assert (fixed.comparison.method, added_to.comparison.method) == ("rounds", "sequence")
        assert added_to.interval[0] < fixed.interval[0]


def test_three_sessions_are_three_observations_and_two_have_no_interval():
    records = [
        record
        for number, scale in enumerate((1.0, 1.02, 0.97, 1.01))
        for mode, rates in (("dp", DP), ("ddp", [scale * t for t in DDP]))
        for record in rounds(mode, rates[: 5 - number % 2], session_id=f"s{number}")
    ]
    comparison = by_mode(records)["ddp"].versus_dp.comparison
    means = []
    for number, scale in enumerate((1.0, 1.02, 0.97, 1.01)):
        pairs = list(zip(DDP, DP, strict=True))[: 5 - number % 2]
        means.append(math.fsum(math.log(scale * b / a) for b, a in pairs) / len(pairs))
    low, high = scipy_stats.ttest_1samp(means, 0.0).confidence_interval(0.95)
    assert (comparison.method, comparison.pairs) == ("sessions", 18)
    assert comparison.interval == pytest.approx((math.exp(low), math.exp(high)))
    assert comparison.session_ids == ("s0", "s1", "s2", "s3")
    two = by_mode([r for r in records if r.session_id in ("s0", "s2")])["ddp"].versus_dp
    assert (two.comparison.method, two.interval, two.verdict) == ("both", None, "faster")


@pytest.mark.parametrize("unknown", [{"session_id": ""}, {"round": None}])
def test_rounds_that_are_not_known_are_not_paired(unknown):
    records = [run("dp", 100.0, **unknown), run("ddp", 120.0, **unknown)]
    versus = by_mode(records)["ddp"].versus_dp
    assert (versus.comparison.paired, versus.verdict) == (False, None)


def test_a_missing_round_is_dropped_for_its_pair_only():
    records = rounds("single", SINGLE) + rounds("dp", DP[:4]) + rounds("ddp", DDP)
    rows = by_mode(records)
    pairs = {mode: rows[mode].versus_baseline.comparison.pairs for mode in ("dp", "ddp")}
    assert pairs == {"dp": 4, "ddp": 5}
    assert rows["ddp"].versus_dp.ratio == pytest.approx(
        scipy_stats.gmean(DDP[:4]) / scipy_stats.gmean(DP[:4])
    )


def test_two_runs_in_one_round_are_one_pair():
    records = [run("dp", 100.0), run("ddp", 110.0), run("ddp", 440.0)]
    row = by_mode(records)["ddp"]
    assert row.runs == 2
    assert (row.versus_dp.comparison.pairs, row.versus_dp.ratio) == (1, pytest.approx(2.2))


def test_speedup_is_over_single_and_efficiency_divides_by_devices():
    rows = by_mode(THREE_MODES)
    expected = scipy_stats.gmean(DDP) / scipy_stats.gmean(SINGLE)
    assert rows["ddp"].speedup == pytest.approx(expected)
    assert rows["ddp"].speedup_ci == rows["ddp"].versus_baseline.interval
    assert rows["ddp"].scaling_efficiency == pytest.approx(expected / 2)
    assert (rows["single"].speedup, rows["single"].speedup_ci) == (1.0, None)


def test_speedup_is_over_single_with_any_baseline():
    rows = by_mode(THREE_MODES, "dp")
    assert rows["ddp"].speedup == pytest.approx(scipy_stats.gmean(DDP) / scipy_stats.gmean(SINGLE))
    assert rows["ddp"].versus_baseline is rows["ddp"].versus_dp
    assert rows["dp"].versus_baseline is None
    assert rows["dp"].versus_dp is rows["single"].versus_dp is None


def test_fsdp_is_compared_like_every_other_mode():
    fsdp = [rate * 0.9 for rate in DDP]
    rows = rows_of([*THREE_MODES, *rounds("fsdp", fsdp)])
    assert [row.mode for row in rows] == ["single", "dp", "ddp", "fsdp"]
    expected = scipy_stats.gmean(fsdp) / scipy_stats.gmean(SINGLE)
    assert rows[3].speedup == rows[3].versus_baseline.ratio == pytest.approx(expected)
    assert rows[3].scaling_efficiency == pytest.approx(expected / 2)
    assert rows[3].versus_baseline.verdict == "faster"
    assert rows[3].versus_dp is None
    against_ddp = by_mode([*THREE_MODES, *rounds("fsdp", fsdp)], "ddp")["fsdp"]
    assert against_ddp.versus_baseline.ratio == pytest.approx(0.9)
    assert against_ddp.versus_baseline.verdict == "slower"


def test_ddp_is_the_baseline_of_fsdp_if_there_is_no_other():
    rows = by_mode([*rounds("ddp", DDP), *rounds("fsdp", DDP)])
    assert rows["ddp"].versus_baseline is None
    assert rows["fsdp"].versus_baseline.baseline == "ddp"
    assert rows["fsdp"].versus_baseline.is_default
    alone = by_mode(rounds("fsdp", DDP))["fsdp"].versus_baseline
    assert (alone.baseline, alone.comparison) == ("", None)


def test_devices_that_share_cores_or_one_gpu_have_no_scaling_efficiency():
    on_cpu = by_mode([run("single", device_type="cpu"), run("ddp", 120.0, device_type="cpu")])
    on_one_gpu = by_mode([run("single"), run("ddp", 120.0, effective_mode="oversubscribed")])
    assert on_cpu["ddp"].speedup == on_one_gpu["ddp"].speedup == pytest.approx(1.2)
    assert on_cpu["ddp"].scaling_efficiency is on_one_gpu["ddp"].scaling_efficiency is None


def test_cpu_rows_are_never_divided_by_cuda_rows():
    """C05."""
    rows = rows_of([run("single", 900.0), run("ddp", 100.0, device_type="cpu")])
    ddp = next(row for row in rows if row.mode == "ddp")
    assert (ddp.speedup, ddp.versus_baseline.ratio, ddp.versus_dp) == (None, None, None)


@pytest.mark.parametrize("effective_mode", ["passthrough", "oversubscribed"])
def test_rows_that_do_not_measure_the_technique_get_a_ratio_and_no_verdict(effective_mode):
    records = rounds("single", SINGLE) + rounds("dp", DP, effective_mode=effective_mode)
    versus = by_mode(records)["dp"].versus_baseline
    assert versus.ratio == pytest.approx(scipy_stats.gmean(DP) / scipy_stats.gmean(SINGLE))
    assert versus.interval is not None
    assert (versus.verdict, versus.rounds_needed) == (None, None)


def test_a_ratio_to_a_passthrough_gets_no_verdict_either():
    records = rounds("dp", DP, effective_mode="passthrough", num_devices=1)
    records += rounds("ddp", DDP, num_devices=1)
    versus = by_mode(records)["ddp"].versus_dp
    assert (versus.ratio > 1.2, versus.verdict) == (True, None)


def test_cpu_replicas_get_a_verdict():
    records = rounds("dp", DP, effective_mode="cpu-replicas", device_type="cpu")
    records += rounds("ddp", DDP, device_type="cpu")
    assert by_mode(records)["ddp"].versus_dp.verdict == "faster"


def test_failed_and_interrupted_runs_are_counted_and_have_no_figures():
    records = [
        run("single"),
        failed("ddp", findings="b;a"),
        run("ddp", None, status="interrupted", findings="a"),
    ]
    row = by_mode(records)["ddp"]
    assert (row.runs, row.failed, row.interrupted, row.findings) == (0, 1, 1, ("a", "b"))
    assert (row.throughput_samples_per_s, row.speedup, row.scaling_efficiency) == (None, None, None)
    assert (row.versus_baseline.baseline, row.versus_baseline.ratio) == ("single", None)
    assert row.versus_baseline.verdict is None


@pytest.mark.parametrize(
    ("column", "values", "code"),
    [
        ("threads_per_rank", (1, 2), "mixed-threads"),
        ("loader_workers", (1, 2), "mixed-loaders"),
    ],
)
def test_pooled_runs_that_differ_in_something_that_matters_have_a_finding(column, values, code):
    alike = [run("dp", **{column: values[0]}), run("dp", **{column: values[0]})]
    unlike = [run("dp", **{column: value}) for value in values]
    unknown = [run("dp"), run("dp", **{column: values[0]})]
    assert by_mode(alike)["dp"].findings == by_mode(unknown)["dp"].findings == ()
    assert by_mode(unlike)["dp"].findings == (code,)


@pytest.mark.parametrize(
    ("column", "values", "codes"),
    [
        ("threads_per_rank", (2, 1), ()),  # all cores are shared among the ranks
        ("loader_workers", (1, 2), ()),  # as many per device
    ],
)
def test_rows_of_one_table_may_differ_in_what_follows_from_their_mode(column, values, codes):
    rows = by_mode([run("single", **{column: values[0]}), run("ddp", **{column: values[1]})])
    assert rows["single"].findings == rows["ddp"].findings == codes


@pytest.mark.parametrize(
    ("scaling", "workers", "codes"),
    [
        ("strong", (4, 2), ("unequal-loaders",)),
        ("strong", (4, 4), ()),
        ("strong", (None, None), ()),
        ("strong", (None, 2), ()),
        ("weak", (1, 2), ()),
    ],
)
def test_with_a_global_batch_single_is_compared_with_as_many_loader_workers(
    scaling, workers, codes
):
    single, other = workers
    rows = by_mode(
        [
            run("single", scaling=scaling, global_batch=128, loader_workers=single),
            run("ddp", scaling=scaling, global_batch=128, loader_workers=other),
        ]
    )
    assert rows["single"].findings == ()
    assert rows["ddp"].findings == codes


def test_a_failed_single_is_no_baseline():
    rows = by_mode([failed("single"), run("dp"), run("ddp", 120.0)])
    assert rows["dp"].versus_baseline is None
    assert rows["ddp"].versus_baseline.baseline == "dp"
    assert rows["ddp"].speedup is None


def test_failed_attempts_are_counted_although_the_runs_succeeded_later():
    records = [*rounds("ddp", DDP, sitting=2), failed("ddp"), failed("ddp", round=2)]
    row = by_mode(records)["ddp"]
    assert (row.runs, row.failed, row.interrupted) == (5, 2, 0)


def test_dp_and_ddp_baselines_have_the_same_number_of_devices():
    records = [
        run(mode, t, num_devices=n)
        for mode, n, t in [
            ("single", 1, 100.0),
            ("dp", 2, 150.0),
            ("dp", 4, 200.0),
            ("ddp", 2, 180.0),
            ("ddp", 4, 300.0),
        ]
    ]
    against_dp = {(row.mode, row.num_devices): row for row in rows_of(records, "dp")}
    assert against_dp["ddp", 2].versus_baseline.ratio == pytest.approx(1.2)
    assert against_dp["ddp", 4].versus_baseline.ratio == pytest.approx(1.5)
    assert against_dp["dp", 4].versus_baseline is None
    assert against_dp["single", 1].versus_baseline.ratio is None
    against_ddp = {(row.mode, row.num_devices): row for row in rows_of(records, "ddp")}
    assert against_ddp["dp", 4].versus_baseline.ratio == pytest.approx(2 / 3)


def test_a_missing_baseline_leaves_the_comparison_unknown():
    versus = by_mode([run("ddp")], "single")["ddp"].versus_baseline
    assert (versus.baseline, versus.comparison) == ("single", None)
    assert (versus.ratio, versus.interval, versus.verdict, versus.rounds_needed) == (None,) * 4
    assert by_mode([run("ddp")])["ddp"].versus_baseline.baseline == ""


def test_the_same_options_are_preferred_and_then_none():
    records = [
        run("dp", 100.0),
        run("dp", 200.0, options="a=1"),
        run("ddp", 300.0, options="a=1"),
        run("ddp", 300.0, options="b=1"),
    ]
    ratios = {row.options: row.versus_dp.ratio for row in rows_of(records) if row.mode == "ddp"}
    assert ratios == {"a=1": pytest.approx(1.5), "b=1": pytest.approx(3.0)}


def test_the_order_of_rows_does_not_depend_on_the_order_of_runs():
    """C67: 1, 2, 4, 8, 16 and not 1, 16, 2, 4, 8."""
    records = [run("single", num_devices=1)] + [
        run(mode, num_devices=n, model=model)
        for mode in ("dp", "ddp")
        for n in (2, 4, 8, 16)
        for model in ("resnet50", "alexnet")
    ]
    expected = [("alexnet", m, n) for m in ("dp", "ddp") for n in (2, 4, 8, 16)]
    expected += [("resnet50", "single", 1)]
    expected += [("resnet50", m, n) for m in ("dp", "ddp") for n in (2, 4, 8, 16)]
    for seed in range(5):
        random.Random(seed).shuffle(records)
        rows = rows_of(records)
        assert [(row.group.model, row.mode, row.num_devices) for row in rows] == expected


def test_groups_with_unknown_values_can_be_ordered():
    records = [run(image_size=None), run(image_size=224), run(compiled=True), run(compiled=None)]
    assert len(rows_of(records)) == 3


def test_a_mode_of_a_newer_version_is_shown_last():
    assert [row.mode for row in rows_of([run("fsdp"), run("ddp")])] == ["ddp", "fsdp"]


def changed(changes, mode="ddp", **fields):
    """Runs whose step time changed over the window by these shares."""
    return [
        run(mode, 100.0 + number, round=number + 1, step_time_change=change, **fields)
        for number, change in enumerate(changes)
    ]


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ([0.0101, 0.0101, 0.0101], ("not-steady",)),
        ([-0.0101, -0.0101, -0.0101], ("not-steady",)),
        ([0.0099, 0.0099, 0.0099], ()),  # by less than 1 %
        ([0.03, 0.03], ()),  # two runs are too few
        ([0.03, 0.03, None], ()),
        ([0.03, 0.03, 0.03, None], ("not-steady",)),
        # The 99 % interval around 3 % with a spread of 1 % has half-widths of 5.7, 2.9 and 2.1 %.
        ([0.02, 0.03, 0.04], ()),
        ([0.02, 0.02, 0.04, 0.04], ()),
        ([0.02, 0.02, 0.03, 0.04, 0.04], ("not-steady",)),
    ],
)
def test_a_row_is_not_steady_if_its_runs_change_by_more_than_1_percent_and_not_by_chance(
    changes, codes
):
    assert by_mode(changed(changes))["ddp"].findings == codes


def test_runs_that_failed_say_nothing_about_steadiness():
    runs = changed([0.03, 0.03])
    assert by_mode([*runs, failed("ddp", step_time_change=0.03)])["ddp"].findings == ()


def of_speedup(speedup, **changes):
    """Five rounds of single, and of ddp on two devices with almost this speed-up."""
    noise = [1.0, 1.0001, 0.9999, 1.0002, 0.9998]
    return [
        *rounds("single", SINGLE),
        *rounds("ddp", [speedup * t * e for t, e in zip(SINGLE, noise, strict=True)], **changes),
    ]


@pytest.mark.parametrize(
    ("speedup", "changes", "codes"),
    [
        (2.001, {}, ("superlinear",)),
        (2.0001, {}, ()),  # its interval holds 2
        (1.999, {}, ()),
        (2.5, {"num_devices": 4}, ()),
        (4.01, {"num_devices": 4}, ("superlinear",)),
        (2.5, {"effective_mode": "oversubscribed"}, ()),
    ],
)
def test_a_speed_up_above_the_number_of_devices_is_named(speedup, changes, codes):
    rows = by_mode(of_speedup(speedup, **changes))
    assert rows["ddp"].findings == codes
    assert rows["single"].findings == ()


def test_a_speed_up_above_the_number_of_devices_is_named_with_any_baseline():
    records = [*of_speedup(2.5), *rounds("dp", DP)]
    assert by_mode(records, "dp")["ddp"].findings == ("superlinear",)


def test_a_single_round_is_not_enough_for_superlinear():
    assert by_mode([run("single", 100.0), run("ddp", 250.0)])["ddp"].findings == ()
