"""What nvidia-smi is asked, and what is made of its answers."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpubench.machine import ask, nvidia_smi
from mgpubench.machine.gpu_advice import examine_gpus
from mgpubench.machine.nvidia_smi import GPU_STATE, HELD_BACK, MIG_MODE, parse_gpu_state
from mgpubench.machine.system import Survey, describe_system

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
def not_asked_yet() -> Iterator[None]:
    """Whether nvidia-smi answers is asked once in a process: forget the answer."""
    nvidia_smi.usual_exit_code.cache_clear()
    yield
    nvidia_smi.usual_exit_code.cache_clear()


@pytest.mark.usefixtures("not_asked_yet")
@pytest.mark.parametrize(
    "script",
    [
        *("exit 9", "sleep 9", "printf '\\377\\376'", "echo No devices were found"),
        "head -c 200000 /dev/zero | tr '\\0' x",  # more than a field of CSV may have
    ],
)
def test_an_nvidia_smi_that_fails_or_hangs_or_prints_nonsense_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(ask, "ANSWER_S", 0.3)
    began_s = time.monotonic()
    assert nvidia_smi.driver_version(is_usable=False) == ""
    system = describe_system()
    assert system.gpu_state == ()
    assert system.gpu_processes == ()
    assert time.monotonic() - began_s < 5


LISTS = "GPU 0: NVIDIA H200 (UUID: GPU-5a1c9d7e-0000-1111-2222-333344445555)"


@pytest.mark.usefixtures("not_asked_yet")
@pytest.mark.parametrize(
    ("code_of_list", "code_of_query"), [(14, 14), (0, 14), (14, 0), (6, 6), (0, 0)]
)
def test_a_good_answer_counts_whatever_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code_of_list: int, code_of_query: int
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = -L ]; then echo "{LISTS}"; exit {code_of_list}; fi\n'
        f"echo 570.86.15; exit {code_of_query}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert nvidia_smi.driver_version(is_usable=False) == "570.86.15"
    system = describe_system()
    assert system.nvidia_smi_exit_code == code_of_list
    survey = Survey(system=system, machine=None, build=None, torch_error="", environment={})
    advice = [each.message for each in examine_gpus(survey)]
    beginning = f"nvidia-smi answers, and exits with code {code_of_list}"
    assert [text.startswith(beginning) for text in advice] == [True] * bool(code_of_list)


@pytest.mark.usefixtures("not_asked_yet")
def test_the_others_are_known_if_a_gpu_has_fallen_off_the_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers for the others, has a sentence about the lost one, and exits with 15."""
    lost = "Unable to determine the device handle for GPU 0000:65:00.0: GPU is lost."
    state = ", ".join(["0", "GPU-1", *["1"] * (len(nvidia_smi.GPU_STATE) - 2 + 2)])
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = -L ]; then echo "{LISTS}"; echo "{lost}"; exit 15; fi\n'
        f'echo "{state}"; echo "{lost}"; exit 15\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (known,) = nvidia_smi.gpu_state()
    assert known["uuid"] == "GPU-1"
    survey = Survey(
        system=describe_system(), machine=None, build=None, torch_error="", environment={}
    )
    assert [each.message for each in examine_gpus(survey)] == [
        "nvidia-smi answers, and exits with code 15 (a GPU has fallen off the bus)"
    ]


@pytest.mark.usefixtures("not_asked_yet")
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
    """It refuses the whole query because of one of them."""
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
    assert nvidia_smi.driver_version(is_usable=False) == ""  # `v:driver_version` is none


@pytest.mark.parametrize(("is_usable", "version"), [(True, "570.86.15"), (False, "")])
def test_the_kernel_is_asked_for_the_driver_only_where_it_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_usable: bool, version: str
) -> None:
    """A container without GPUs sees the module of its host."""
    (tmp_path / "version").write_text("570.86.15\n")
    monkeypatch.setattr(nvidia_smi, "DRIVER", tmp_path / "version")
    monkeypatch.setattr(nvidia_smi, "ask", lambda *arguments: "")
    assert nvidia_smi.driver_version(is_usable=is_usable) == version


@pytest.mark.usefixtures("not_asked_yet")
def test_a_driver_that_does_not_answer_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert nvidia_smi.driver_version(is_usable=False) == ""


@pytest.fixture
def fake_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, not_asked_yet: None) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\nprintf "\\tGPU0\\n\\033[4masked\\033[0m\\t$*\\n"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("fake_nvidia_smi")
def test_the_topology_is_shown_without_underlining_and_tabs() -> None:
    assert nvidia_smi.topology() == "        GPU0\nasked   topo -m"
    assert describe_system().gpu_topology == nvidia_smi.topology()
