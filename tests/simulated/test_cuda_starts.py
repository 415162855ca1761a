"""Which processes start CUDA: seen by a pretended driver, so that no GPU is needed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from mgpubench.errors import BenchError
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import open_supervisor
from mgpubench.session.workers import TRAINING, launch_run
from tests.conftest import environment, make_cpu_config
from tests.processes import Command, open_files
from tests.simulated.conftest import HERE

Run = Callable[..., Command]

QUICK = (
    *("--model", "tiny-cnn", "--image-size", 32, "-b", 2, "--warmup-steps", 1, "--steps", 2),
    *("--rounds", 1, "--mode", "dp,ddp"),
)


class Start(NamedTuple):
    """A process that started CUDA."""

    pid: int
    parent: int
    sees_gpus: bool


@dataclass(frozen=True)
class Driver:
    """The pretended driver, and what it has noted."""

    folder: Path
    log: Path

    @property
    def variables(self) -> dict[str, str]:
        """What a process needs in its environment to load it."""
        others = os.environ.get("LD_LIBRARY_PATH", "")
        return {
            "LD_LIBRARY_PATH": f"{self.folder}:{others}".rstrip(":"),
            "MGPUBENCH_CUDA_STARTS": str(self.log),
        }

    def starts(self) -> set[Start]:
        """Each process that started CUDA."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return {
            Start(int(pid), int(parent), sees == "visible")
            for pid, parent, sees in map(str.split, lines)
        }


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pretended libcuda.so.1, built with gcc."""
    if shutil.which("gcc") is None:
        pytest.skip("the pretended driver is built with gcc, which was not found")
    import torch

    if torch.version.cuda is None:
        pytest.skip("this torch was built without CUDA, and cannot start it")
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run(
        [
            *("gcc", "-shared", "-fPIC", str(HERE / "libcuda.c")),
            *("-o", str(folder / "libcuda.so.1")),
        ],
        check=True,
    )
    return folder


@pytest.fixture
def driver(library: Path, tmp_path: Path) -> Driver:
    """A driver that has noted nothing so far."""
    return Driver(library, tmp_path / "starts.txt")


@pytest.mark.parametrize("arguments", [("--device", "cpu"), ("--device", "auto")])
def test_only_the_process_that_looks_for_gpus_sees_them(
    start: Run, driver: Driver, arguments: tuple[str, ...]
) -> None:
    """Not the ranks of a run on the CPU: torch's autograd counts the GPUs, and finds none."""
    command = start("run", *arguments, *QUICK, **driver.variables)
    assert command.wait(110) == 0, command.err
    starts = driver.starts()
    assert len([one for one in starts if one.sees_gpus]) == 1
    assert_not_by_parent_or_fork_server(starts, command.popen.pid)


def assert_not_by_parent_or_fork_server(starts: Collection[Start], parent: int) -> None:
    """A process that has started CUDA cannot be forked. The fork server is a child of `parent`."""
    for one in starts:
        assert parent not in (one.pid, one.parent)


def test_a_rank_of_a_cuda_run_starts_cuda_where_it_chooses_its_gpu(driver: Driver) -> None:
    config = make_cpu_config(
        mode="ddp", num_devices=2, world_size=2, device_type="cuda", device_indices=(0, 1),
        backend="nccl",
    )  # fmt: skip
    with (
        StopSignal().installed() as stop,
        open_supervisor(stop, TRAINING, driver.variables) as supervisor,
        pytest.raises(BenchError, match="No CUDA GPUs are available") as caught,
    ):
        launch_run(supervisor, config, lambda steps: None)
    assert caught.value.details.count("torch.cuda.set_device(part.device)") == 1
    assert "set_up_process(part)" in caught.value.details
    assert [one.sees_gpus for one in driver.starts()] == [True, True]
    assert_not_by_parent_or_fork_server(driver.starts(), os.getpid())


def test_open_files_are_seen() -> None:
    """With it tests/gpu sees who uses a GPU."""
    assert "/dev/full" not in open_files(os.getpid())
    with open("/dev/full"):
        assert "/dev/full" in open_files(os.getpid())
    assert open_files(2**22 + 1) == set()


def test_a_variable_that_torch_sets_is_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    before = environment()
    monkeypatch.setenv("CUDA_MODULE_LOADING", "LAZY")
    assert environment() == before
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert environment() != before
