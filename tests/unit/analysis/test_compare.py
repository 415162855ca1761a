"""Which runs are compared with which, and the results."""

import math
import random
from dataclasses import fields

import pytest
from scipy import stats as scipy_stats

from mgpubench.analysis.compare import compare
from mgpubench.analysis.groups import GROUP_KEY, group_of
from mgpubench.results.schema import RunRecord
from tests.conftest import make_run_record as run

MARGIN = 0.02


def failed(mode, **changes):
    return run(mode, None, status="failed", **changes)


def rounds(mode, throughputs, **changes):
    return [run(mode, t, round=i + 1, **changes) for i, t in enumerate(throughputs)]


def rows_of(records, baseline=None):
    return compare(records, baseline, MARGIN)


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


def test_rounds_in_common_are_compared_in_pairs():
    versus = by_mode(THREE_MODES)["ddp"].versus_dp
    test = scipy_stats.ttest_rel([math.log(x) for x in DDP], [math.log(x) for x in DP])
    low, high = map(math.exp, test.confidence_interval(0.95))
    assert versus.ratio == pytest.approx(scipy_stats.gmean(DDP) / scipy_stats.gmean(DP))
    assert versus.interval == pytest.approx((low, high))
    assert (versus.baseline, versus.comparison.pairs) == ("dp", 5)
    assert versus.comparison.paired is True
    assert (versus.verdict, versus.rounds_needed) == ("faster", None)


def test_sessions_without_common_rounds_are_compared_by_welch():
    records = rounds("dp", DP) + rounds("ddp", DDP, session_id="s2")
    versus = by_mode(records)["ddp"].versus_baseline
    test = scipy_stats.ttest_ind(
        [math.log(x) for x in DDP], [math.log(x) for x in DP], equal_var=False
    )
    low, high = map(math.exp, test.confidence_interval(0.95))
    assert versus.interval == pytest.approx((low, high))
    assert (versus.baseline, versus.comparison.pairs) == ("dp", 5)
    assert versus.comparison.paired is False


@pytest.mark.parametrize("unknown", [{"session_id": ""}, {"round": None}])
def test_rounds_that_are_not_known_are_not_paired(unknown):
    records = [run("dp", 100.0, **unknown), run("ddp", 120.0, **unknown)]
    assert by_mode(records)["ddp"].versus_dp.comparison.paired is False


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
    assert rows["ddp"].versus_baseline == rows["ddp"].versus_dp


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


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("machine", "0badcafe"),
        ("device_names", "2x NVIDIA Y"),
        ("device_names", "1x NVIDIA X + 1x NVIDIA Y"),
        ("device_type", "cpu"),
        ("model", "resnet18"),
        ("num_parameters", 7),
        ("data", "synthetic-host"),
        ("image_size", 160),
        ("precision", "amp-bf16"),
        ("channels_last", True),
        ("compiled", True),
        ("workers_per_device", 2),
        ("scaling", "strong"),
        ("batch_per_device", 32),
        ("warmup_steps", 3),
        ("steps", 9),
        ("torch_version", "2.14.1"),
        ("cuda_version", "13.0"),
        ("driver_version", "580.1"),
    ],
)
def test_another_value_is_other_work(field, value):
    rows = rows_of([run("dp"), run("ddp", **{field: value})])
    assert len({row.group for row in rows}) == 2
    assert all(row.versus_dp is None for row in rows)


@pytest.mark.parametrize(
    "changes", [{"global_batch": 1}, {"nccl_version": "2.29"}, {"seed": 3}, {"session_id": "s2"}]
)
def test_what_does_not_change_the_work_does_not_split_a_group(changes):
    assert len({row.group for row in rows_of([run("dp"), run("ddp", **changes)])}) == 1


def test_strong_scaling_is_grouped_by_the_global_batch():
    strong = {"scaling": "strong", "global_batch": 128}
    records = [
        run("single", batch_per_device=128, **strong),
        run("ddp", 180.0, batch_per_device=64, **strong),
    ]
    row = by_mode(records)["ddp"]
    assert row.speedup == pytest.approx(1.8)
    assert (row.group.batch_per_device, row.group.global_batch) == (None, 128)


def test_if_the_scaling_is_unknown_both_batches_must_be_equal():
    records = [run("dp", scaling=""), run("ddp", scaling="", global_batch=1)]
    assert len({row.group for row in rows_of(records)}) == 2


@pytest.mark.parametrize(
    ("names", "models"),
    [
        ("8x NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("1x X + 12x Y", "X + Y"),
        ("NVIDIA RTX 2x Edition", "NVIDIA RTX 2x Edition"),
        ("N/A", "N/A"),
        ("", ""),
    ],
)
def test_device_models_are_device_names_without_counts(names, models):
    assert group_of(run(device_names=names)).device_models == models


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
        ("model_digest", ("a", "b"), "mixed-models"),
        ("dataset_digest", ("a", "b"), "mixed-data"),
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
        ("model_digest", ("a", "b"), ("mixed-models",)),
        ("dataset_digest", ("a", "b"), ("mixed-data",)),
    ],
)
def test_rows_of_one_table_train_the_same_model_on_the_same_images(column, values, codes):
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
    assert by_mode([run("ddp")])["ddp"].versus_baseline.baseline is None


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


def test_every_column_of_a_run_is_either_compared_shown_or_known_not_to_matter():
    """A new column must be put on one of the two sides when it is added."""
    beside = {field.name for field in fields(RunRecord)} - set(GROUP_KEY)
    assert beside == {
        *("schema_version", "run_id", "session_id", "round", "position", "started_at", "status"),
        *("error", "mode", "effective_mode", "num_devices", "world_size", "num_nodes", "backend"),
        *("parameter_bytes", "dataset_samples", "threads_per_rank", "options", "samples"),
        *("window_s", "throughput_samples_per_s", "throughput_per_device_samples_per_s"),
        *("step_time_median_s", "step_time_p95_s", "step_time_p99_s", "step_time_max_s"),
        *("data_wait_s", "peak_memory_bytes", "seed", "device_names", "nccl_version"),
        *("python_version", "mgpubench_version", "findings", "skipped_images", "compile_s"),
        *("recompiles", "model_digest", "others_cpu_share", "loader_workers", "dataset_digest"),
    }
