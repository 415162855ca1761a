"""The machine at one moment, as the kernel and the package metadata describe it."""

from __future__ import annotations

import json
import os
import platform
import socket
from dataclasses import asdict

import psutil
import pytest

from mgpubench.machine.advice import examine
from mgpubench.machine.cgroups import MemoryLimit
from mgpubench.machine.system import Survey, describe_system


def test_this_computer_is_described() -> None:
    system = describe_system()
    assert 1 <= system.usable_cores <= (system.cores or 0)
    assert 0 < (system.memory_available_bytes or 0) <= (system.memory_bytes or 0)
    assert set(system.affinity) == os.sched_getaffinity(0)
    assert "torch" in system.packages
    assert system.packages["torch"].startswith(system.torchvision_needs)
    assert any(interface.name == "lo" for interface in system.interfaces or ())


def test_no_name_of_a_host_or_user_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "secret-host")
    monkeypatch.setattr(platform, "node", lambda: "secret-host")
    monkeypatch.setenv("HOME", "/home-of-secret-user")
    monkeypatch.setenv("USER", "secret-user")
    text = json.dumps(asdict(describe_system()))
    assert not [word for word in ("secret-host", "secret-user") if word in text]


@pytest.mark.parametrize("free_bytes", [4096, 2**62])
def test_a_process_gets_no_more_memory_than_the_machine_and_its_cgroup_have(
    monkeypatch: pytest.MonkeyPatch, free_bytes: int
) -> None:
    limit = MemoryLimit(limit_bytes=2**62, free_bytes=free_bytes)
    monkeypatch.setattr("mgpubench.machine.system.memory_limit", lambda total_bytes: limit)
    system = describe_system()
    assert system.memory_limit_bytes == 2**62
    assert (system.memory_available_bytes or 0) <= min(free_bytes, system.memory_bytes or 0)


class Nothing:
    """All 0, as some containers show it."""

    total = available = 0


@pytest.mark.parametrize("error", [OSError, ValueError, KeyError, IndexError, RuntimeError])
def test_what_the_system_hides_is_unknown_and_costs_nothing_else(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def hidden(*arguments: object, **named: object) -> None:
        raise error("hidden")

    for name in ("virtual_memory", "cpu_count", "net_if_stats"):
        monkeypatch.setattr(psutil, name, hidden)
    monkeypatch.setattr(os, "getloadavg", hidden)
    system = describe_system()
    assert system.memory_bytes is system.cores is system.physical_cores is None
    assert system.load_average_1min is system.interfaces is None
    about_the_system = Survey(
        system=system, machine=None, build=None, torch_error="", environment={}
    )
    codes = {advice.code for advice in examine(about_the_system)}
    assert not codes & {"little-memory", "busy", "fewer-cores", "no-loopback"}


def test_memory_of_0_bytes_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", Nothing)
    monkeypatch.setattr("mgpubench.machine.system.memory_limit", lambda total_bytes: None)
    system = describe_system()
    assert (system.memory_bytes, system.memory_available_bytes) == (None, None)


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
