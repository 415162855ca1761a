"""Which runs are equal work, and may be compared."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from mgpubench.analysis.compare import compare
from mgpubench.analysis.groups import GROUP_KEY, group_of, group_records
from mgpubench.analysis.row import Row
from mgpubench.report.sections import describe
from mgpubench.results.schema import RunRecord
from tests.conftest import make_run_record as run


def groups_of(*records: RunRecord) -> int:
    return len(group_records(records))


def rows_of(records: Sequence[RunRecord]) -> list[Row]:
    return compare(records, None, 0.02)


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
        ("scaling", "strong"),
        ("batch_per_device", 32),
        ("warmup_steps", 3),
        ("steps", 9),
        ("torch_version", "2.14.1"),
        ("cuda_version", "13.0"),
        ("nccl_version", "2.29"),
        ("driver_version", "580.1"),
        ("python_version", "3.12.1"),
        ("environment", "0badcafe"),
        ("environment", "none"),
        ("model_digest", "0badcafe"),
        ("dataset_digest", "0badcafe"),
        ("method_version", 3),
    ],
)
def test_another_value_is_other_work(field: str, value: object) -> None:
    rows = rows_of([run("dp"), run("ddp", **{field: value})])
    assert len({row.group for row in rows}) == 2
    assert all(row.versus_dp is None for row in rows)


@pytest.mark.parametrize(
    "changes",
    [
        {"global_batch": 1},
        {"seed": 3},
        {"session_id": "s2"},
        {"sitting": 2},
        {"rounds_added": 1},
        {"threads_per_rank": 3},
        {"mgpubench_version": "9"},
        {"workers_per_device": 2},
        {"data": "synthetic-host", "workers_per_device": 2},
    ],
    ids=str,
)
def test_what_does_not_change_the_work_does_not_split_a_group(changes: dict[str, Any]) -> None:
    common = {"data": changes.get("data", "synthetic")}
    assert groups_of(run("dp", **common), run("ddp", **changes)) == 1


def test_loader_workers_split_groups_only_if_images_are_loaded() -> None:
    """The default number follows from --gpus, so that it differs between calls on one machine."""
    images = {"data": "imagefolder:photos"}
    two, four = ({**images, "workers_per_device": number} for number in (2, 4))
    assert groups_of(run("dp", **two), run("ddp", **four)) == 2
    assert group_of(run("dp", **two)).workers_per_device == 2
    assert group_of(run("dp", workers_per_device=2)).workers_per_device is None


@pytest.mark.parametrize(
    ("version", "minor"),
    [
        ("3.12.1", "3.12"),
        ("3.12.11", "3.12"),
        ("3.9.18", "3.9"),
        ("3.14.0rc2", "3.14"),
        ("3.13.1+", "3.13"),
        ("3.13.1t", "3.13t"),
        ("3.14.0rc2t", "3.14t"),
        ("", ""),
        ("odd", "odd"),
    ],
)
def test_only_the_minor_version_of_python_counts_and_whether_it_is_free_threaded(
    version: str, minor: str
) -> None:
    assert group_of(run(python_version=version)).python == minor


def test_strong_scaling_is_grouped_by_the_global_batch() -> None:
    strong = {"scaling": "strong", "global_batch": 128}
    records = [
        run("single", batch_per_device=128, **strong),
        run("ddp", 180.0, batch_per_device=64, **strong),
    ]
    row = next(row for row in rows_of(records) if row.mode == "ddp")
    assert row.speedup == pytest.approx(1.8)
    assert (row.group.batch_per_device, row.group.global_batch) == (None, 128)


def test_if_the_scaling_is_unknown_both_batches_must_be_equal() -> None:
    assert groups_of(run("dp", scaling=""), run("ddp", scaling="", global_batch=1)) == 2


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
def test_device_models_are_device_names_without_counts(names: str, models: str) -> None:
    assert group_of(run(device_names=names)).device_models == models


# A CPU without a name.


@pytest.mark.parametrize("names", ["2x CPU", "1x CPU", "CPU", ""])
def test_a_cpu_without_a_name_is_never_pooled_across_sessions(names: str) -> None:
    """Two containers that hide the model may be on any two machines."""
    cpu = {"device_type": "cpu", "device_names": names, "machine": "0badcafe"}
    assert groups_of(run("dp", **cpu), run("ddp", **cpu)) == 1
    assert groups_of(run("dp", **cpu), run("ddp", **cpu, session_id="s2")) == 2


def test_a_cpu_with_a_name_is_pooled() -> None:
    cpu = {"device_type": "cpu", "device_names": "2x CPU Y", "machine": "0badcafe"}
    assert groups_of(run("dp", **cpu), run("ddp", **cpu, session_id="s2")) == 1
    gpu = {"device_names": "2x CPU"}
    assert groups_of(run("dp", **gpu), run("ddp", **gpu, session_id="s2")) == 1


# Variants.


def variants(session: str = "s1", **settings: dict[str, Any]) -> list[RunRecord]:
    """Two rounds of ddp in each variant: its name, and the columns that it sets."""
    return [
        run(
            "ddp",
            100.0 + number,
            variant=name,
            variant_number=number,
            session_id=session,
            round=round_,
            **columns,
        )
        for round_ in (1, 2)
        for number, (name, columns) in enumerate(settings.items(), start=1)
    ]


@pytest.mark.parametrize(
    "column",
    [
        {"precision": "fp32"},
        {"batch_per_device": 32},
        {"steps": 9},
        {"compiled": True},
        {"channels_last": True},
        {"model": "resnet18", "num_parameters": 11},
        {"data": "synthetic-host"},
        {"warmup_steps": 3},
        {"options": "env:ATEN_CPU_CAPABILITY=default"},
    ],
    ids=str,
)
def test_variants_of_one_session_meet_whatever_they_set(column: dict[str, Any]) -> None:
    rows = rows_of(variants(default={}, other=column))
    assert len({row.group for row in rows}) == 1
    default, other = rows
    assert (default.variant, default.versus_baseline) == ("default", None)
    assert other.versus_baseline is not None
    assert other.versus_baseline.baseline == "default"
    assert other.versus_baseline.ratio == pytest.approx(102 / 101)
    assert other.versus_baseline.comparison is not None
    assert other.versus_baseline.comparison.pairs == 2


def test_the_group_says_what_its_variants_vary_and_does_not_claim_one_value() -> None:
    [row, _] = rows_of(variants(default={}, half={"precision": "fp32", "steps": 9}))
    assert row.group.variants == (
        "default (precision=tf32, steps=None) | half (precision=fp32, steps=9)"
    )
    assert (row.group.precision, row.group.steps) == ("", None)
    assert row.group.model == "resnet50"
    [row, _] = rows_of(variants(default={}, cap50={"options": "bucket_cap_mb=50"}))
    assert row.group.variants == "cap50 | default"


def test_sessions_with_equal_variants_are_pooled() -> None:
    first = variants(default={}, half={"precision": "fp32"})
    second = variants("s2", default={}, half={"precision": "fp32"})
    rows = rows_of([*first, *second])
    assert [(row.variant, row.runs) for row in rows] == [("default", 4), ("half", 4)]
    assert rows[1].versus_baseline is not None
    assert rows[1].versus_baseline.comparison is not None
    assert rows[1].versus_baseline.comparison.session_ids == ("s1", "s2")


def test_variants_with_the_same_names_and_other_settings_stay_apart() -> None:
    first = variants(default={}, half={"precision": "fp32"})
    second = variants("s2", default={}, half={"precision": "amp-bf16"})
    assert groups_of(*first, *second) == 2


def test_variants_of_other_work_stay_apart() -> None:
    first = variants(a={}, b={"precision": "fp32"})
    second = variants("s2", a={"model": "resnet18"}, b={"model": "resnet18", "precision": "fp32"})
    assert groups_of(*first, *second) == 2


def test_runs_without_a_variant_do_not_mix_with_those_of_a_variant() -> None:
    assert groups_of(*variants(a={}, b={}), run("ddp")) == 2


def test_a_variants_group_does_not_depend_on_which_of_its_modes_comes_first() -> None:
    """GPUs of two models: single uses the first alone, and ddp both."""
    names = {"single": "1x NVIDIA X", "ddp": "1x NVIDIA X + 1x NVIDIA Y"}
    records = [
        run(mode, variant=variant, variant_number=number, device_names=names[mode])
        for number, variant in enumerate("ab", start=1)
        for mode in names
    ]
    expected = set(group_records(records))
    assert {group.variants for group in expected} == {"a | b"}
    for seed in range(10):
        shuffled = random.Random(seed).sample(records, len(records))
        assert set(group_records(shuffled)) == expected


# Whatever the order of the file.


def session(name: str, rng: random.Random, **common: Any) -> list[RunRecord]:
    return [
        run(mode, rng.uniform(90, 110), session_id=name, round=number, **common)
        for number in range(1, 7)
        for mode in ("single", "dp", "ddp")
    ]


def test_rows_and_every_digit_are_the_same_in_any_order_of_the_runs() -> None:
    rng = random.Random(0)
    records = [
        *(record for name in ("s1", "s2", "s3") for record in session(name, rng)),
        *session("s4", rng, steps=9),
        *session("s5", rng, steps=9, rounds_added=2),
        *variants("s6", default={}, half={"precision": "fp32"}),
        run("ddp", None, status="failed"),
    ]
    expected = rows_of(records)
    assert len(expected) == 8
    for seed in range(5):
        assert rows_of(random.Random(seed).sample(records, len(records))) == expected


def test_groups_with_unknown_values_can_be_ordered() -> None:
    records = [run(image_size=None), run(image_size=224), run(compiled=True), run(compiled=None)]
    assert len(rows_of(records)) == 3


def test_a_row_that_succeeded_must_have_a_throughput() -> None:
    with pytest.raises(ValueError, match="is ok and has no throughput"):
        rows_of([replace(run(), throughput_samples_per_s=None)])


def test_every_column_of_a_run_is_either_compared_shown_or_known_not_to_matter() -> None:
    """A new column must be put on one of the two sides when it is added."""
    beside = {field.name for field in fields(RunRecord)} - set(GROUP_KEY)
    assert beside == {
        *("schema_version", "run_id", "session_id", "round", "position", "started_at", "status"),
        *("error", "mode", "effective_mode", "num_devices", "world_size", "num_nodes", "backend"),
        *("parameter_bytes", "dataset_samples", "threads_per_rank", "options", "samples"),
        *("window_s", "throughput_samples_per_s", "throughput_per_device_samples_per_s"),
        *("step_time_median_s", "step_time_p95_s", "step_time_p99_s", "step_time_max_s"),
        *("data_wait_s", "peak_memory_bytes", "seed", "mgpubench_version", "findings"),
        *(
            "skipped_images",
            "skipped_steps",
            "warmup_s",
            "compile_s",
            "recompiles",
            "others_cpu_share",
            "loader_workers",
        ),
        *("variant", "variant_number", "sitting", "rounds_added", "step_time_change"),
        *("peak_reserved_bytes", "gpu_power_mean_w", "energy_j", "samples_per_joule"),
        *("gpu_temperature_max_c", "gpu_utilization_mean", "gpu_utilization_per_device"),
        "throttle_reasons",
        *("device_names", "python_version"),  # in the key as device_models and python
    }
    assert set(GROUP_KEY) - {field.name for field in fields(RunRecord)} == {
        *("device_models", "python", "variants"),
    }


def test_dp_with_channels_last_on_gpus_is_a_table_of_its_own() -> None:
    """Only its first replica has that memory format."""
    records = [run(mode, channels_last=True) for mode in ("single", "dp", "ddp")]
    rows = {row.mode: row for row in rows_of(records)}
    assert rows["single"].group == rows["ddp"].group != rows["dp"].group
    assert rows["dp"].speedup is None
    assert rows["ddp"].versus_dp is None
    assert rows["ddp"].speedup == 1.0
    title = describe(list(rows_of(records)))[-1].title
    assert "channels-last in the first replica" in title


@pytest.mark.parametrize(
    "changes",
    [
        {"device_type": "cpu", "effective_mode": "cpu-replicas"},
        {"num_devices": 1, "effective_mode": "passthrough"},
        {"channels_last": False},
    ],
)
def test_dp_keeps_its_memory_format_elsewhere(changes: dict[str, Any]) -> None:
    record = run("dp", **{"channels_last": True, **changes})
    assert group_of(record).channels_last is changes.get("channels_last", True)
