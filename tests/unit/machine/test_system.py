"""What is asked of the kernel and of nvidia-smi."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from mgpubench.machine import host
from mgpubench.machine.nvidia_smi import GPU_STATE, HELD_BACK, MIG_MODE, parse_gpu_state
from mgpubench.machine.system import describe_system


def test_this_computer_is_described() -> None:
    system = describe_system()
    assert 1 <= system.usable_cores <= (system.cores or 0)
    assert 0 < system.memory_available_bytes <= system.memory_bytes
    assert set(system.affinity) == os.sched_getaffinity(0)
    assert "torch" in system.packages
    assert system.packages["torch"].startswith(system.torchvision_needs)
    assert any(interface.name == "lo" for interface in system.interfaces)


def test_no_name_of_a_host_or_user_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "secret-host")
    monkeypatch.setattr(platform, "node", lambda: "secret-host")
    monkeypatch.setenv("HOME", "/home-of-somebody")
    monkeypatch.setenv("USER", "somebody")
    text = json.dumps(asdict(describe_system()))
    assert not [word for word in ("secret-host", "somebody") if word in text]


H200 = (
    "0, GPU-5a1c9d7e-0000-1111-2222-333344445555, NVIDIA H200, 570.86.15, 143771 MiB, 0 MiB, P0, "
    "31, 76.61 W, 700.00 W, 700.00 W, 345 MHz, 1980 MHz, Enabled, Enabled, 5, 16, 16, [N/A], "
    "0x0000000000000001\n"
)


def test_the_state_of_gpus_leaves_unknown_values_out() -> None:
    names = (*GPU_STATE, MIG_MODE, HELD_BACK)
    (state,) = parse_gpu_state(H200, names)
    assert set(names) - set(state) == {MIG_MODE}
    assert state["name"] == "NVIDIA H200"
    assert state["power.limit"] == "700.00 W"
    assert state[HELD_BACK] == "0x0000000000000001"
    assert parse_gpu_state("", names) == ()
    assert parse_gpu_state("NVIDIA-SMI has failed\n", names) == ()


@pytest.fixture
def ask_anew() -> Iterator[None]:
    """Whether nvidia-smi answers is asked once in a process."""
    host.nvidia_smi_answers.cache_clear()
    yield
    host.nvidia_smi_answers.cache_clear()


@pytest.mark.usefixtures("ask_anew")
@pytest.mark.parametrize(
    "script",
    [
        *("exit 9", "sleep 9", "printf '\\377\\376'", "echo No devices were found"),
        "head -c 200000 /dev/zero | tr '\\0' x",  # more than a field of CSV may have
    ],
)
def test_an_nvidia_smi_that_fails_hangs_or_talks_nonsense_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(host, "ANSWER_S", 0.3)
    began_s = time.monotonic()
    assert host.driver_version(is_usable=False) == ""
    system = describe_system()
    assert system.gpu_state == ()
    assert system.gpu_processes == ()
    assert time.monotonic() - began_s < 5


@pytest.mark.usefixtures("ask_anew")
@pytest.mark.parametrize(
    ("known", "is_held_back_known"),
    [
        ("mig.mode.current clocks_event_reasons.active", True),
        ("mig.mode.current clocks_throttle_reasons.active", True),  # before driver 535
        ("", False),
    ],
)
def test_properties_that_a_driver_does_not_know_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str, is_held_back_known: bool
) -> None:
    """It refuses the whole question for one of them."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f"""#!{sys.executable}
import sys
known = "{" ".join(GPU_STATE)} {known}".split()
if "-L" in sys.argv:
    print("GPU 0")
for argument in sys.argv:
    if argument.startswith("--query-gpu="):
        asked = argument.partition("=")[2].split(",")
        if set(asked) - set(known):
            print("Field is not a valid field to query.")
            sys.exit(2)
        print(", ".join("v:" + name for name in asked))
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (state,) = describe_system().gpu_state
    assert {name: state[name] for name in GPU_STATE} == {name: f"v:{name}" for name in GPU_STATE}
    assert (HELD_BACK in state) is is_held_back_known
    assert host.driver_version(is_usable=False) == ""  # `v:driver_version` is none


@pytest.mark.parametrize(("is_usable", "version"), [(True, "570.86.15"), (False, "")])
def test_the_kernel_is_asked_for_the_driver_only_where_it_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_usable: bool, version: str
) -> None:
    """A container without GPUs sees the module of its host."""
    (tmp_path / "version").write_text("570.86.15\n")
    monkeypatch.setattr(host, "DRIVER", tmp_path / "version")
    monkeypatch.setattr(host, "ask_nvidia_smi", lambda *arguments: "")
    assert host.driver_version(is_usable=is_usable) == version


@pytest.fixture
def fake_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask_anew: None) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\nprintf "\\tGPU0\\n\\033[4masked\\033[0m\\t$*\\n"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("fake_nvidia_smi")
def test_nvidia_smi_is_asked_where_it_is() -> None:
    assert describe_system().gpu_topology == "        GPU0\nasked   topo -m"


def test_shared_memory_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shared = host.shared_memory()
    assert shared is not None
    assert shared.free_bytes <= shared.size_bytes
    monkeypatch.setattr(host, "SHARED_MEMORY", tmp_path / "none")
    assert host.shared_memory() is None


MIB = 2**20


@pytest.mark.parametrize(
    ("text", "limit"),
    [(str(MIB), host.MemoryLimit(MIB, MIB - 4096)), ("max", None), ("9" * 19, None)],
)
def test_a_memory_limit_is_that_of_the_cgroup(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, limit: host.MemoryLimit | None
) -> None:
    """cgroup v1 writes a number beyond all memory for no limit."""
    (tmp_path / "own").write_text("0::/job\n")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "memory.max").write_text(text + "\n")
    (tmp_path / "job" / "memory.current").write_text("4096\n")
    monkeypatch.setattr(host, "CGROUP", tmp_path)
    monkeypatch.setattr(host, "OWN_CGROUP", tmp_path / "own")
    assert host.cgroup_memory(2**40) == limit


def test_the_commit_is_that_of_the_checkout() -> None:
    if not (Path(host.__file__).parents[2] / ".git").exists():
        assert host.own_commit() == ""
    else:
        assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?", host.own_commit())


@pytest.mark.parametrize(
    ("requirements", "needed"),
    [
        (["numpy", "torch==2.14.1", "pillow!=8.3.*,>=5.3.0"], "2.14.1"),
        (["numpy", "torch (==2.6.0)"], "2.6.0"),
        (["torch (>=2.14.0)"], ""),  # as some repackage it
        (None, ""),
    ],
)
def test_a_torchvision_names_the_torch_that_it_was_built_for(
    monkeypatch: pytest.MonkeyPatch, requirements: list[str] | None, needed: str
) -> None:
    monkeypatch.setattr("mgpubench.machine.system.requires", lambda name: requirements)
    assert describe_system().torchvision_needs == needed
