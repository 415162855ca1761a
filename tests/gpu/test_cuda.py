"""Whole runs on one GPU and on several. Skipped, with the reason, if there are too few."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mgpubench.session.telemetry import SAMPLER
from tests.processes import Command, open_files, wait_until

pytestmark = pytest.mark.gpu

Start = Callable[..., Command]
SMALL = (
    *("run", "--device", "cuda", "--model", "resnet18", "--image-size", 64, "-b", 8),
    *("--warmup-steps", 12, "--steps", 20, "--rounds", 1, "--out", "out"),
)


def rows(folder: Path) -> list[dict[str, str]]:
    (path,) = folder.glob("out/*/runs.csv")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def measured_sums(folder: Path) -> list[float]:
    """The sum of the measured step times of each rank."""
    (path,) = folder.glob("out/*/steps.csv")
    sums: dict[tuple[str, str], float] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["phase"] == "measured":
                key = row["run_id"], row["rank"]
                sums[key] = sums.get(key, 0.0) + float(row["step_time_s"])
    return list(sums.values())


@pytest.mark.parametrize("precision", ["fp32", "tf32", "amp-bf16"])
def test_single(start: Start, tmp_path: Path, precision: str) -> None:
    import torch

    if precision == "tf32" and torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("tf32 needs compute capability 8.0")
    command = start(*SMALL, "--mode", "single", "--precision", precision)
    assert command.wait(120) == 0, command.err
    (row,) = rows(tmp_path)
    assert row["device_type"] == "cuda"
    assert row["precision"] == precision
    assert row["device_names"] == f"1x {torch.cuda.get_device_name()}"
    assert int(row["peak_memory_bytes"]) > int(row["parameter_bytes"])
    assert row["nccl_version"] != ""
    assert row["driver_version"] != ""


def test_events_sum_to_the_window_and_agree_with_the_host(start: Start, tmp_path: Path) -> None:
    assert start(*SMALL, "--mode", "single").wait(120) == 0
    (row,) = rows(tmp_path)
    assert measured_sums(tmp_path) == [pytest.approx(float(row["window_s"]), rel=0.01)]
    assert "clock-mismatch" not in row["findings"]
    assert ("short-window" in row["findings"].split(";")) == (float(row["window_s"]) < 1)


@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_one_rank_over_nccl(start: Start, tmp_path: Path, mode: str) -> None:
    command = start(*SMALL, "--mode", mode, "--gpus", 1)
    assert command.wait(120) == 0, command.err
    (row,) = rows(tmp_path)
    assert (row["backend"], row["world_size"]) == ("nccl", "1")


def test_dp_on_one_gpu_is_a_passthrough(start: Start, tmp_path: Path) -> None:
    command = start(*SMALL, "--mode", "dp", "--gpus", 1)
    assert command.wait(120) == 0, command.err
    assert rows(tmp_path)[0]["effective_mode"] == "passthrough"
    assert "pass-through" in command.err


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", ["dp", "ddp"])
def test_two_replicas_on_one_gpu(start: Start, tmp_path: Path, mode: str) -> None:
    import torch

    torch.cuda.init()  # otherwise torch may count GPUs that a process cannot use
    count = torch.cuda.device_count() + 1
    command = start(*SMALL, "--mode", mode, "--gpus", count, "--oversubscribe")
    assert command.wait(180) == 0, command.err
    (row,) = rows(tmp_path)
    assert row["effective_mode"] == "oversubscribed"
    assert row["backend"] == ("gloo" if mode == "ddp" else "")


def test_variants_with_variables_of_their_own(start: Start, tmp_path: Path) -> None:
    """Each has a fork server, and neither of them nor the parent ever holds a CUDA context."""
    command = start(
        *(*SMALL, "--mode", "single"),
        *("--variant", "default:", "--variant", "blocking: --env CUDA_LAUNCH_BLOCKING=1"),
    )
    assert command.wait(120) == 0, command.err
    found = rows(tmp_path)
    assert {row["variant"]: row["options"] for row in found} == {
        "default": "",
        "blocking": "env:CUDA_LAUNCH_BLOCKING=1",
    }
    assert len({row["environment"] for row in found}) == 1
    assert "single blocking against default on 1 device: " in command.out


def test_real_images(start: Start, tmp_path: Path, photos: Callable[..., Path]) -> None:
    command = start(*SMALL, "--mode", "single", "--data", photos(cat=8, dog=8))
    assert command.wait(120) == 0, command.err
    assert rows(tmp_path)[0]["dataset_samples"] == "16"


def test_the_parent_and_the_fork_server_never_open_a_gpu(start: Start, tmp_path: Path) -> None:
    """They must hold no context, which would take memory from the runs. The sampler has none."""
    command = start(*SMALL, "--mode", "single", "--steps", 10**6, "--timeout", 10**6)
    # The file is written after the processes that ask about GPUs and model have ended.
    wait_until(lambda: bool(list(tmp_path.glob("out/*/runs.csv"))), 60, "start of the session")
    wait_until(
        lambda: any(open_gpus(rank.pid) for rank in command.ranks()), 60, "the rank uses a GPU"
    )
    children = [
        process
        for process in command.family()
        if process.parent_pid == command.popen.pid and SAMPLER not in process.command
    ]
    assert children
    for pid in (command.popen.pid, *(child.pid for child in children)):
        assert open_gpus(pid) == set()


def open_gpus(pid: int) -> set[str]:
    """The device files of NVIDIA's driver that a process has open. Importing torch opens none."""
    return {path for path in open_files(pid) if path.startswith("/dev/nvidia")}


def test_session_json_names_the_gpu(start: Start, tmp_path: Path) -> None:
    assert start(*SMALL, "--mode", "single").wait(120) == 0
    (path,) = tmp_path.glob("out/*/session.json")
    machine = json.loads(path.read_text())["machine"]
    assert machine["gpus"][0]["memory_bytes"] > 2**30
    assert machine["cuda_reason"] == ""


def test_telemetry_agrees_with_nvidia_smi(start: Start, tmp_path: Path) -> None:
    """A training of some seconds: its power is between that of an idle GPU and its limit."""
    asked = ("nvidia-smi", "--query-gpu=uuid,power.limit", "--format=csv,noheader,nounits")
    limits = dict(
        line.split(", ")
        for line in subprocess.run(
            asked, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    )
    command = start(*SMALL, "--mode", "single", "--steps", 2000)
    assert command.wait(120) == 0, command.err
    (row,) = rows(tmp_path)
    (path,) = tmp_path.glob("out/*/telemetry.csv")
    with path.open(newline="", encoding="utf-8") as file:
        samples = [line for line in csv.DictReader(file) if line["device"] in limits]
    assert samples
    assert {line["error"] for line in samples} == {""}
    assert 20 < float(row["gpu_temperature_max_c"]) < 110
    assert 0 < float(row["gpu_utilization_mean"]) <= 1
    most_w = max(float(limit) for limit in limits.values())
    assert 10 < float(row["gpu_power_mean_w"]) < 1.1 * most_w
    joules = float(row["gpu_power_mean_w"]) * float(row["window_s"])
    assert float(row["energy_j"]) == pytest.approx(joules)


@pytest.mark.timeout(240)
@pytest.mark.multigpu
@pytest.mark.parametrize("mode", ["dp", "ddp"])
def test_every_gpu_works(start: Start, tmp_path: Path, mode: str) -> None:
    command = start(*SMALL, "--mode", mode, "--gpus", 2)
    assert command.wait(180) == 0, command.err
    (row,) = rows(tmp_path)
    peaks = [int(peak) for peak in row["peak_memory_bytes"].split(";")]
    assert len(peaks) == 2
    assert min(peaks) > int(row["parameter_bytes"])
