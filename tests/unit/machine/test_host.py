"""Facts about the host: left-over variables, foreign launchers, threads and cores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mgpubench.errors import RequestRefused
from mgpubench.machine import host


@pytest.mark.parametrize(
    "name",
    [
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME"),
        *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"),
        *("SLURM_PROCID", "SLURM_JOB_ID", "SLURM_NTASKS"),
    ],
)
def test_variables_of_launchers_are_known(name: str) -> None:
    """C18."""
    assert host.LAUNCHER_VARIABLES.fullmatch(name)


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "PYTORCH_ALLOC_CONF"),
        *("MY_RANK", "RANKS", "FRANK", "MASTERY", "SLURM", "master_addr"),
    ],
)
def test_other_variables_are_left_alone(name: str) -> None:
    assert not host.LAUNCHER_VARIABLES.fullmatch(name)


def test_torchrun_is_refused_by_name() -> None:
    """C33."""
    with pytest.raises(RequestRefused, match="started under torchrun") as caught:
        host.refuse_foreign_launcher({"TORCHELASTIC_RUN_ID": "none", "RANK": "0"})
    assert "on its own" in caught.value.hint


def test_several_tasks_of_srun_are_refused_by_name() -> None:
    with pytest.raises(RequestRefused, match="started by srun as one of 4 tasks") as caught:
        host.refuse_foreign_launcher({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"})
    assert "srun --ntasks=1" in caught.value.hint


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "192.0.2.1"},
        {"TORCHELASTIC_USE_AGENT_STORE": "True"},
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
        {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "8"},  # inside sbatch, without srun
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "many"},
    ],
    ids=str,
)
def test_other_environments_are_no_launcher(environ: dict[str, str]) -> None:
    host.refuse_foreign_launcher(environ)


@pytest.mark.parametrize(
    ("value", "threads"),
    [
        ("3", 3),
        (" 3 ", 3),
        ("4,2", 4),  # nested levels: ours is the outer one
        ("", None),
        ("0", None),
        ("-1", None),
        ("two", None),
        (",2", None),
    ],
)
def test_omp_num_threads_is_a_positive_number_or_nothing(value: str, threads: int | None) -> None:
    assert host.omp_num_threads({"OMP_NUM_THREADS": value}) == threads


def test_omp_num_threads_may_be_unset() -> None:
    assert host.omp_num_threads({}) is None


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cgroup without limits, on a machine whose affinity allows eight cores."""
    monkeypatch.setattr(host, "CGROUP", tmp_path)
    monkeypatch.setattr(host, "OWN_CGROUP", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    return tmp_path


def test_affinity_decides_where_there_is_no_quota(cgroup: Path) -> None:
    assert host.usable_cores() == 8


@pytest.mark.parametrize(
    ("content", "cores"),
    [
        ("max 100000\n", 8),
        ("300000 100000\n", 3),
        ("250000 100000\n", 2),  # two and a half
        ("50000 100000\n", 1),
        ("1600000 100000\n", 8),
        ("no such format\n", 8),
    ],
)
def test_the_quota_of_cgroup_2_counts(cgroup: Path, content: str, cores: int) -> None:
    (cgroup / "cpu.max").write_text(content)
    assert host.usable_cores() == cores


@pytest.mark.parametrize(("quota", "cores"), [(-1, 8), (300_000, 3), (50_000, 1), (1_600_000, 8)])
def test_the_quota_of_cgroup_1_counts(cgroup: Path, quota: int, cores: int) -> None:
    (cgroup / "cpu").mkdir()
    (cgroup / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (cgroup / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert host.usable_cores() == cores


def test_the_least_quota_of_the_cgroups_around_a_job_counts(cgroup: Path) -> None:
    (cgroup / "own").write_text("0::/slurm/job_7/step_0\n")
    job = cgroup / "slurm" / "job_7"
    (job / "step_0").mkdir(parents=True)
    (job / "step_0" / "cpu.max").write_text("max 100000\n")
    (job / "cpu.max").write_text("200000 100000\n")
    (cgroup / "slurm" / "cpu.max").write_text("600000 100000\n")
    assert host.usable_cores() == 2


def test_a_driver_that_does_not_answer_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert host.driver_version(is_usable=False) == ""


def test_assumed_gpus_differ_from_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    machine = host.assumed_machine(2)
    assert len({gpu.uuid for gpu in machine.gpus}) == 2
    assert machine.cuda_reason == ""
    assert machine.cuda_visible_devices == "0,1"
    assert machine.omp_num_threads == 3
    assert machine.usable_cores == host.usable_cores()


def test_no_assumed_gpus_have_a_reason() -> None:
    assert host.assumed_machine(0).cuda_reason == "torch sees no CUDA device"
