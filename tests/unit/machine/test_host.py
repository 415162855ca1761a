"""What the operating system says: usable cores, shared memory, and an assumed machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mgpubench.machine import cgroups, host


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cgroup without limits, on a machine whose affinity allows eight cores."""
    monkeypatch.setattr(cgroups, "CGROUP", tmp_path)
    monkeypatch.setattr(cgroups, "OWN_CGROUP", tmp_path / "own")
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
def test_a_quota_below_the_affinity_counts(cgroup: Path, content: str, cores: int) -> None:
    (cgroup / "cpu.max").write_text(content)
    assert host.usable_cores() == cores


@pytest.mark.parametrize(("quota", "cores"), [(-1, 8), (300_000, 3), (50_000, 1), (1_600_000, 8)])
def test_a_quota_of_cgroup_1_counts_too(cgroup: Path, quota: int, cores: int) -> None:
    (cgroup / "cpu").mkdir()
    (cgroup / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (cgroup / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert host.usable_cores() == cores


def test_shared_memory_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shared = host.shared_memory()
    assert shared is not None
    assert shared.free_bytes <= shared.size_bytes
    monkeypatch.setattr(host, "SHARED_MEMORY", tmp_path / "none")
    assert host.shared_memory() is None


def test_shared_memory_without_a_size_is_not_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tmpfs that is mounted with size=0 has no limit, and says 0 blocks."""
    sizeless = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: sizeless)
    shared = host.shared_memory()
    assert shared is not None
    assert (shared.size_bytes, shared.free_bytes) == (None, None)


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


def test_a_machine_has_no_gpu_if_there_is_no_file_of_a_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(host, "DEVICES", tmp_path)
    assert not host.may_have_gpu()
    (tmp_path / "nvidiactl").touch()
    assert host.may_have_gpu()
