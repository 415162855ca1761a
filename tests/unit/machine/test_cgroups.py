"""Cores and memory that the control groups of both versions allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpubench.machine import cgroups
from mgpubench.machine.cgroups import MemoryLimit, memory_limit, quota_cores

MIB = 2**20


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cgroup without limits."""
    monkeypatch.setattr(cgroups, "CGROUP", tmp_path)
    monkeypatch.setattr(cgroups, "OWN_CGROUP", tmp_path / "own")
    return tmp_path


def test_without_a_limit_there_is_no_quota(cgroup: Path) -> None:
    assert quota_cores() is None


@pytest.mark.parametrize(
    ("content", "cores"),
    [
        ("max 100000\n", None),
        ("300000 100000\n", 3.0),
        ("250000 100000\n", 2.5),
        ("50000 100000\n", 0.5),
        ("1600000 100000\n", 16.0),
        ("no such format\n", None),
        ("0 0\n", None),
        ("0 100000\n", None),
    ],
)
def test_the_quota_of_cgroup_2_counts(cgroup: Path, content: str, cores: float | None) -> None:
    (cgroup / "cpu.max").write_text(content)
    assert quota_cores() == cores


@pytest.mark.parametrize(
    ("quota", "cores"), [(-1, None), (300_000, 3.0), (50_000, 0.5), (1_600_000, 16.0)]
)
def test_the_quota_of_cgroup_1_counts(cgroup: Path, quota: int, cores: float | None) -> None:
    (cgroup / "cpu").mkdir()
    (cgroup / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (cgroup / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert quota_cores() == cores


def test_the_least_quota_of_the_cgroups_around_a_job_counts(cgroup: Path) -> None:
    (cgroup / "own").write_text("0::/slurm/job_7/step_0\n")
    job = cgroup / "slurm" / "job_7"
    (job / "step_0").mkdir(parents=True)
    (job / "step_0" / "cpu.max").write_text("max 100000\n")
    (job / "cpu.max").write_text("200000 100000\n")
    (cgroup / "slurm" / "cpu.max").write_text("600000 100000\n")
    assert quota_cores() == 2.0


@pytest.mark.parametrize(
    ("text", "limit"), [(str(MIB), MemoryLimit(MIB, MIB - 4096)), ("max", None), ("9" * 19, None)]
)
def test_a_memory_limit_is_that_of_the_cgroup(
    cgroup: Path, text: str, limit: MemoryLimit | None
) -> None:
    """Version 1 of cgroups writes a number beyond all memory for no limit."""
    (cgroup / "own").write_text("0::/job\n")
    (cgroup / "job").mkdir()
    (cgroup / "job" / "memory.max").write_text(text + "\n")
    (cgroup / "job" / "memory.current").write_text("4096\n")
    assert memory_limit(2**40) == limit
