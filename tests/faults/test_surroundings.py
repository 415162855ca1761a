"""Faults of the machine around a run: limits, disks, networks. Each needs a process of its own."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mgpubench.reader import read_runs
from tests.processes import Command, mgpubench, wait_until

pytestmark = pytest.mark.faults

TINY = (
    *("run", "--device", "cpu", "--model", "tiny-cnn", "--image-size", 32, "-b", 4),
    *("--warmup-steps", 1, "--steps", 4, "--rounds", 1, "--out", "out"),
)
DDP = (*TINY, "--mode", "ddp", "--gpus", 2)
Start = Callable[..., Command]


def within(script: str) -> tuple[str, ...]:
    """A shell script that ends by starting the command."""
    return ("sh", "-c", f'{script} && exec "$@"', "sh")


def unshared(flag: str, script: str) -> tuple[str, ...]:
    """The same with mounts, a host name or a network of its own; skips where there is none."""
    tool = shutil.which("unshare")
    if not tool or os.getuid() != 0 or subprocess.run([tool, flag, "true"]).returncode:
        pytest.skip(f"needs root and unshare {flag}")
    return (tool, flag, *within(script))


def test_too_few_open_files_are_named(tmp_path: Path) -> None:
    command = mgpubench(*DDP, cwd=tmp_path, prefix=within("ulimit -n 12"))
    assert command.wait() == 1
    assert "Too many open files" in command.err
    assert "ulimit" in command.err
    assert "Traceback" not in command.err


def test_a_disk_that_fills_up_during_the_run_keeps_what_was_written(tmp_path: Path) -> None:
    """The steps do not fit; nothing of them stays, and session.json and both headers do."""
    (tmp_path / "out").mkdir()
    # The folder is looked at from inside, since the mount goes with the process.
    copy = "&& cp -r out kept; cat code; exit $(cat code)"
    script = 'mount -t tmpfs -o size=64k tmpfs out; "$@"; echo $? > code; true ' + copy
    command = Command(
        *(*TINY, "--mode", "single", "--steps", 1500),
        cwd=tmp_path,
        prefix=(*unshared("-m", "true")[:2], "sh", "-c", script, "sh"),
    )
    assert command.wait() == 1
    assert "steps.csv cannot be written: No space left on device" in command.err
    assert "Traceback" not in command.err
    (steps,) = (tmp_path / "kept").glob("*/steps.csv")
    assert len(steps.read_text().splitlines()) == 1


def test_a_host_name_that_does_not_resolve_is_no_matter(tmp_path: Path) -> None:
    """C55."""
    command = mgpubench(*DDP, cwd=tmp_path, prefix=unshared("-u", "hostname nohost-xyz"))
    assert command.wait() == 0
    assert "nohost" not in command.err


def test_the_loopback_interface_is_enough(tmp_path: Path) -> None:
    """C74."""
    command = mgpubench(*DDP, cwd=tmp_path, prefix=unshared("-n", "ip link set lo up"))
    assert command.wait() == 0, command.err


def test_a_loopback_interface_that_is_down_is_named(tmp_path: Path) -> None:
    command = mgpubench(*DDP, cwd=tmp_path, prefix=unshared("-n", "true"))
    assert command.wait() == 1
    assert "hint: The loopback interface is down" in command.err
    assert "Traceback" not in command.err


def test_a_session_whose_parent_was_killed_is_resumed(start: Start, tmp_path: Path) -> None:
    """Exactly the missing runs are made, and the whole looks as if nothing had happened."""
    plan = (*TINY, "--mode", "all", "--gpus", 2, "--rounds", 5, "--steps", 50)
    command = start(*plan)

    def rows() -> list[list[str]]:
        texts = [path.read_text() for path in tmp_path.glob("out/*/runs.csv")]
        return list(csv.reader(texts[0].splitlines())) if texts else []

    wait_until(lambda: len(rows()) > 7, 60, "seven rows")
    command.family()
    os.kill(command.popen.pid, signal.SIGKILL)
    command.wait()
    command.assert_nobody_left()
    made = len(rows()) - 1
    assert 7 <= made < 15
    (folder,) = (tmp_path / "out").iterdir()
    resumed = mgpubench("run", "--resume", folder, cwd=tmp_path)
    assert resumed.wait() == 0, resumed.err
    records = read_runs(folder / "runs.csv").records
    assert [record.position for record in records] == list(range(1, 16))
    assert all(record.is_ok for record in records)
    assert sorted((record.round, record.mode) for record in records) == sorted(
        (number, mode) for number in range(1, 6) for mode in ("single", "dp", "ddp")
    )
    again = mgpubench("run", "--resume", folder, cwd=tmp_path)
    assert again.wait() == 0
    assert "nothing is missing" in again.err
    assert len(rows()) == 16
