"""Signals and kills, from outside, against a whole `mgpubench run`."""

from __future__ import annotations

import csv
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import Command, Process, all_processes, wait_until

pytestmark = pytest.mark.faults

TINY = (
    *("run", "--device", "cpu", "--model", "tiny-cnn", "--image-size", 64, "-b", 4),
    *("--warmup-steps", 1, "--rounds", 1, "--out", "out"),
)
Start = Callable[..., Command]
LONG = (*TINY, "--steps", 100_000)


def rows(folder: Path) -> list[dict[str, str]]:
    """All rows of the only session below a folder."""
    (path,) = folder.glob("out/*/runs.csv")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def await_steps(command: Command, num_ranks: int) -> list[Process]:
    """Wait until the ranks are training: rank 0 has made its step counter and used some time."""

    def training() -> bool:
        ranks = command.ranks()
        return len(ranks) == num_ranks and all(cpu_seconds(rank) > 1.0 for rank in ranks)

    wait_until(training, 60, "ranks that train")
    return command.ranks()


def cpu_seconds(process: Process) -> float:
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("signum", "exit_code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_a_signal_ends_the_run_with_its_code_and_a_row(
    start: Start, tmp_path: Path, signum: signal.Signals, exit_code: int
) -> None:
    command = start(*LONG, "--mode", "ddp", "--gpus", 2)
    await_steps(command, 2)
    sent = time.monotonic()
    command.popen.send_signal(signum)
    assert command.wait(15) == exit_code
    assert time.monotonic() - sent < 15
    command.assert_nobody_left()
    assert command.err.splitlines()[-1] == f"error: interrupted by {signum.name}"
    assert "Traceback" not in command.err
    assert [(row["status"], row["throughput_samples_per_s"]) for row in rows(tmp_path)] == [
        ("interrupted", "")
    ]


def test_ctrl_c_twice_to_the_whole_group_with_loader_workers(
    start: Start, tmp_path: Path, photos: Callable[..., Path]
) -> None:
    """C19: what a terminal does, with impatience."""
    command = start(
        *(*LONG, "--mode", "ddp", "--gpus", 2, "--workers-per-gpu", 2, "--data", photos()),
    )
    await_steps(command, 2)
    for _ in range(2):
        os.killpg(command.popen.pid, signal.SIGINT)
        time.sleep(0.1)
    assert command.wait(15) == 130
    command.assert_nobody_left()
    assert command.err.splitlines()[-1] == "error: interrupted by SIGINT"


@pytest.mark.parametrize("delay_s", [0.3, 1.0])
def test_ctrl_c_while_torch_is_loading(start: Start, tmp_path: Path, delay_s: float) -> None:
    command = start(*LONG, "--mode", "single")
    wait_until(lambda: len(command.family()) >= 2, 30, "the fork server")
    time.sleep(delay_s)
    os.killpg(command.popen.pid, signal.SIGINT)
    assert command.wait(15) == 130
    command.assert_nobody_left()
    assert command.err == "error: interrupted by SIGINT\n"
    assert not (tmp_path / "out").exists()


def test_a_killed_rank_is_named_and_the_other_modes_go_on(start: Start, tmp_path: Path) -> None:
    """C10: not the peer's "connection closed", and no waiting for the collective's timeout."""
    command = start(*LONG, "--mode", "ddp", "--gpus", 2)
    ranks = await_steps(command, 2)
    os.kill(ranks[1].pid, signal.SIGKILL)
    assert command.wait(30) == 1
    command.assert_nobody_left()
    assert f"(pid {ranks[1].pid}) was killed by signal 9 (SIGKILL)" in command.err
    assert "closed by peer" not in command.err
    (row,) = rows(tmp_path)
    assert row["status"] == "failed"
    assert "SIGKILL" in row["error"]
    assert row["window_s"] == row["throughput_samples_per_s"] == ""


def test_no_process_outlives_a_killed_parent(
    start: Start, tmp_path: Path, photos: Callable[..., Path]
) -> None:
    """The parent cannot clean up after SIGKILL, so the ranks notice its end by themselves."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    command = start(
        *(*LONG, "--mode", "ddp", "--gpus", 2, "--data", photos()),
        TMPDIR=str(scratch),
    )
    await_steps(command, 2)
    command.popen.kill()
    command.wait(5)
    command.assert_nobody_left(5)
    assert not [name for name in os.listdir(scratch) if name.startswith("mgpubench-")]


def test_a_run_that_cannot_end_in_time_is_ended_after_the_warm_up(
    start: Start, tmp_path: Path
) -> None:
    began = time.monotonic()
    command = start(*LONG, "--mode", "single", "--timeout", 20)
    assert command.wait(60) == 1
    assert "single x1 cannot end within --timeout 20 s" in command.err
    assert "s a step" in command.err
    assert time.monotonic() - began < 20
    assert rows(tmp_path)[0]["status"] == "failed"


def test_an_image_that_cannot_be_read_is_named_once(
    start: Start, tmp_path: Path, photos: Callable[..., Path]
) -> None:
    """C10, second part: the exception and the file, not the peer's complaint."""
    root = photos(cat=8, dog=8)
    (root / "dog" / "0.jpg").write_bytes(b"no image")
    command = start(*LONG, "--mode", "ddp", "--gpus", 2, "--data", root)
    assert command.wait(60) == 1
    command.assert_nobody_left()
    named = [line for line in command.err.splitlines() if "0.jpg" in line]
    assert len(named) == 1
    assert f"cannot read image {root / 'dog' / '0.jpg'}: it is not an image" in named[0]
    assert "Traceback" not in command.err


def test_nothing_is_left_of_the_processes_of_a_run_that_succeeds(
    start: Start, tmp_path: Path
) -> None:
    command = start(*TINY, "--steps", 50, "--mode", "all")
    while command.popen.poll() is None:
        command.family()
        time.sleep(0.05)
    assert command.popen.returncode == 0
    assert len(command.seen) >= 4
    command.assert_nobody_left(5)
    assert not [p for p in all_processes() if str(tmp_path) in p.command]


def test_a_stopped_rank_does_not_outlive_a_killed_parent(start: Start) -> None:
    """It cannot watch anything itself: the kernel must end it."""
    command = start(*LONG, "--mode", "ddp", "--gpus", 2)
    ranks = await_steps(command, 2)
    os.kill(ranks[1].pid, signal.SIGSTOP)
    command.family()
    command.popen.kill()
    command.popen.wait()
    command.assert_nobody_left()
