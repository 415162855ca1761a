"""A row that contradicts itself is skipped, with its line and the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpubench.results.identities import contradictions
from mgpubench.results.read import read_runs
from mgpubench.results.schema import RunRecord
from tests.conftest import make_run_record
from tests.runs_csv import write_session

FIGURES: dict[str, Any] = {
    "world_size": 1,
    "steps": 100,
    "samples": 51200,
    "window_s": 100.0,
    "throughput_per_device_samples_per_s": 64.0,
    "step_time_median_s": 0.9,
    "step_time_p95_s": 1.4,
    "step_time_p99_s": 1.5,
    "step_time_max_s": 2.0,
    "data_wait_s": 3.0,
    "peak_memory_bytes": ";".join(["1000"] * 8),
    "accumulate": 2,
    "skipped_steps": 1,
    "skipped_images": 1,
    "dataset_samples": 5000,
    "others_cpu_share": 0.1,
}
DP: RunRecord = make_run_record("dp", 512.0, num_devices=8, **FIGURES)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch_per_device": None},
        {"global_batch": None, "samples": None},
        {"mode": "ddp", "effective_mode": "ddp", "world_size": 8},
        {"world_size": None},
        {"peak_memory_bytes": ""},
        {"peak_memory_bytes": "1000"},  # replicas that share a GPU
        {"data_wait_s": 100.5},  # as far as a spreadsheet may have rounded it
        {"step_time_p95_s": None},
    ],
)
def test_a_row_that_fits_together_is_used(changes: dict[str, Any]) -> None:
    assert list(contradictions(replace(DP, **changes))) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"global_batch": 64}, "global_batch is 64, and num_devices x batch_per_device is 8 x 64"),
        ({"batch_per_device": 32}, "num_devices x batch_per_device is 8 x 32"),
        ({"accumulate": 3}, "batch_per_device is 64, and accumulate 3"),
        ({"world_size": 8}, "world_size is 8, and dp on 8 devices has 1"),
        (
            {"mode": "ddp", "effective_mode": "ddp"},
            "world_size is 1, and ddp on 8 devices has 8",
        ),
        (
            {"mode": "single", "effective_mode": "single"},
            "mode is 'single', and num_devices is 8",
        ),
        ({"effective_mode": "passthrough"}, "'passthrough', and num_devices is 8"),
        ({"effective_mode": "cpu-replicas"}, "'cpu-replicas', and device_type is 'cuda'"),
        ({"step_time_median_s": 1.5}, "step_time_median_s is 1.5, and step_time_p95_s is 1.4"),
        ({"step_time_p95_s": None, "step_time_p99_s": 2.1}, "step_time_p99_s is 2.1"),
        ({"step_time_max_s": 102.0}, "step_time_max_s is 102.0, and window_s is 100.0"),
        ({"data_wait_s": 102.0}, "data_wait_s is 102.0, and window_s is 100.0"),
        ({"skipped_steps": 102}, "skipped_steps is 102, and steps is 100"),
        ({"skipped_images": 6000}, "skipped_images is 6000, and dataset_samples is 5000"),
        ({"peak_memory_bytes": ";".join("123456789")}, "peak_memory_bytes has 9 values"),
        ({"others_cpu_share": 1.1}, "others_cpu_share is 1.1"),
    ],
)
def test_a_row_that_contradicts_itself_is_skipped(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    folder = write_session(tmp_path, "s1", [DP, replace(DP, **changes)])
    reading = read_runs(folder / "runs.csv")
    assert [record.global_batch for record in reading.records] == [512]
    (warning,) = reading.warnings
    assert warning.startswith(f"{folder / 'runs.csv'}: line 3: ")
    assert reason in warning
    assert warning.endswith("; skipped")


def test_the_case_that_looked_eight_times_as_fast(tmp_path: Path) -> None:
    """8 devices with 64 samples each, a global batch of 64, and samples of 64 a step."""
    broken = replace(
        DP, global_batch=64, samples=6400, throughput_samples_per_s=64.0, window_s=100.0
    )
    broken = replace(broken, throughput_per_device_samples_per_s=8.0)
    reading = read_runs(write_session(tmp_path, "s1", [DP, broken]) / "runs.csv")
    assert len(reading.records) == 1
    assert "global_batch is 64, and num_devices x batch_per_device is 8 x 64" in reading.warnings[0]
