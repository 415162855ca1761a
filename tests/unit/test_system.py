"""What is asked of the kernel and of nvidia-smi."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
from dataclasses import asdict
from pathlib import Path

import pytest

from mgpubench import host
from mgpubench.system import GPU_STATE, describe_system, parse_gpu_state


def test_this_computer_is_described() -> None:
    system = describe_system()
    assert 1 <= system.usable_cores <= (system.cores or 0)
    assert 0 < system.memory_available_bytes <= system.memory_bytes
    assert set(system.affinity) == os.sched_getaffinity(0)
    assert "torch" in system.packages
    assert any(interface.name == "lo" for interface in system.interfaces)


def test_no_name_of_a_host_or_user_is_described() -> None:
    text = json.dumps(asdict(describe_system()))
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text


def test_the_state_of_gpus_leaves_unknown_values_out() -> None:
    values = [f"v{number}" for number in range(len(GPU_STATE))]
    values[2] = "[N/A]"
    (state,) = parse_gpu_state(", ".join(values) + "\n")
    assert "name" not in state
    assert state == {
        name: value for name, value in zip(GPU_STATE, values, strict=True) if name != "name"
    }
    assert parse_gpu_state("") == parse_gpu_state("NVIDIA-SMI has failed\n") == ()


@pytest.fixture
def fake_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\necho "asked $*"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("fake_nvidia_smi")
def test_nvidia_smi_is_asked_where_it_is() -> None:
    assert describe_system().gpu_topology == "asked topo -m"


def test_shared_memory_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shared = host.shared_memory()
    assert shared is not None
    assert shared.free_bytes <= shared.size_bytes
    monkeypatch.setattr(host, "SHARED_MEMORY", tmp_path / "none")
    assert host.shared_memory() is None


@pytest.mark.parametrize(("text", "limit"), [("1048576", 2**20), ("max", None), ("9" * 19, None)])
def test_a_memory_limit_is_that_of_the_cgroup(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, limit: int | None
) -> None:
    """cgroup v1 writes a number beyond all memory for no limit."""
    (tmp_path / "own").write_text("0::/job\n")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "memory.max").write_text(text + "\n")
    monkeypatch.setattr(host, "CGROUP", tmp_path)
    monkeypatch.setattr(host, "OWN_CGROUP", tmp_path / "own")
    assert host.cgroup_memory_limit(2**40) == limit


def test_the_commit_is_that_of_the_checkout() -> None:
    if not (Path(host.__file__).parents[1] / ".git").exists():
        assert host.own_commit() == ""
    else:
        assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?", host.own_commit())
