"""The sampler's process: what it writes, what it answers, and that it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mgpubench.machine.sampler import LEAVE_SCREEN, _busy_share, _open
from mgpubench.results.telemetry import MACHINE, TELEMETRY_COLUMNS, read_telemetry
from tests.fakes import nvml_environment


def start(path: Path, *arguments: object, fds: tuple[int, ...] = (), **nvml: Any) -> Any:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "mgpubench.machine.sampler", str(path), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **nvml_environment(**nvml)},
        pass_fds=fds,
    )


def test_a_run_is_sampled_at_its_start_and_end_and_a_hanging_call_blocks_nothing(
    tmp_path: Path,
) -> None:
    """GPU 1 hangs from the start on: the rows of the machine are there all the same."""
    path = tmp_path / "telemetry.csv"
    hang = {"1": {"nvmlDeviceGetPowerUsage": "hang"}}
    process = start(path, gpus=2, fail=hang)
    answers, _ = process.communicate(b"run r7\nend\nbye\n", timeout=30)
    assert process.returncode == 0
    assert answers.splitlines() == [b"nvml NVML does not answer", b"ok"]
    lines = path.read_text().splitlines()
    assert lines[0] == ",".join(TELEMETRY_COLUMNS)
    assert [line.split(",")[2:4] for line in lines[1:]] == [["r7", MACHINE]] * 2


def test_rows_hold_the_gpus_and_what_the_sampler_used_itself(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.csv"
    process = start(path, gpus=2)
    process.communicate(b"run r1\nend\nbye\n", timeout=30)
    samples = list(read_telemetry(path))
    assert [sample.device for sample in samples] == [MACHINE, "GPU-0", "GPU-1"] * 2
    assert samples[1].power_w == 300.0
    assert samples[3].sampler_cpu_s is not None
    assert samples[3].sampler_cpu_s > 0
    assert samples[3].clock_s >= samples[0].clock_s


def test_a_killed_parent_leaves_a_terminal_that_can_be_used(tmp_path: Path) -> None:
    """Its end of the pipe is closed, and no `bye` came."""
    reading, writing = os.pipe()
    process = start(tmp_path / "telemetry.csv", writing, fds=(writing,), gpus=0)
    os.close(writing)
    process.communicate(b"run r1\n", timeout=30)
    assert os.read(reading, 100) == LEAVE_SCREEN
    os.close(reading)


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    process = start(tmp_path / "none" / "telemetry.csv")
    answers, _ = process.communicate(b"run r1\nend\n", timeout=30)
    assert answers == b"failed No such file or directory\n"
    assert process.returncode == 0


@pytest.mark.parametrize("unfinished", ["", "2026,1.0,r1,mach"])
def test_a_file_is_continued_behind_its_last_whole_line(tmp_path: Path, unfinished: str) -> None:
    path = tmp_path / "telemetry.csv"
    path.write_text(f"header\nrow\n{unfinished}")
    with _open(path) as file:
        file.write("new\n")
    assert path.read_text() == "header\nrow\nnew\n"


class Times:
    """CPU times as psutil gives them."""

    _fields = ("user", "idle", "guest")

    def __init__(self, user: float, idle: float, guest: float = 0.0) -> None:
        self.user, self.idle, self.guest = user, idle, guest


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        (Times(10, 20), Times(11, 23), 0.25),
        (Times(10, 20), Times(11, 23, guest=1), 0.25),  # it is in the user time too
        (Times(10, 20), Times(10, 20), None),
        (None, Times(10, 20), None),
    ],
)
def test_the_share_of_busy_cores(before: Any, after: Any, share: float | None) -> None:
    assert _busy_share(before, after) == share
