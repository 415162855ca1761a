"""Faults of the machine around a run: limits, disks, networks. Each needs a process of its own."""

from __future__ import annotations

import contextlib
import csv
import os
import re
import shutil
import signal
import socket
import subprocess
import time
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
EXAMPLE = Path(__file__).parents[2] / "results" / "example"
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
    script = 'mount -t tmpfs -o size=48k tmpfs out; "$@"; echo $? > code; true ' + copy
    command = Command(
        *(*TINY, "--mode", "single", "--steps", 600),
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
    plan = (*TINY, "--mode", "all", "--gpus", 2, "--rounds", 5, "--steps", 10)
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


def test_nothing_listens_beyond_this_machine(start: Start, tmp_path: Path) -> None:
    command = start(*DDP, "--steps", 100_000)
    wait_until(lambda: len(command.ranks()) == 2 and listening(command), 60, "listening ranks")
    assert set(listening(command)) == {"127.0.0.1"}
    command.popen.send_signal(signal.SIGTERM)
    assert command.wait(15) == 143


def listening(command: Command) -> list[str]:
    """The addresses at which the processes of a command listen."""
    inodes = set()
    for process in [command.popen.pid, *(p.pid for p in command.family())]:
        with contextlib.suppress(OSError):
            links = [os.readlink(path) for path in Path(f"/proc/{process}/fd").iterdir()]
            inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in inodes:
                address = bytes.fromhex(fields[1].partition(":")[0])[::-1]
                found.append(socket.inet_ntop(socket.AF_INET, address) if name == "tcp" else "::")
    return found


LISTENING = "0A"
"""The state of a socket in /proc/net/tcp."""


def test_nothing_is_written_outside_out_and_nothing_stays_in_tmpdir(tmp_path: Path) -> None:
    for name in ("home", "tmp", "work"):
        (tmp_path / name).mkdir()
    env = {name: str(tmp_path / "home") for name in ("HOME", "XDG_CACHE_HOME", "TORCH_HOME")}
    command = mgpubench(*DDP, cwd=tmp_path / "work", env={**env, "TMPDIR": str(tmp_path / "tmp")})
    assert command.wait() == 0, command.err
    assert os.listdir(tmp_path / "home") == os.listdir(tmp_path / "tmp") == []
    assert sorted(os.listdir(tmp_path / "work")) == ["out", "stderr.txt", "stdout.txt"]
    (session,) = (tmp_path / "work" / "out").iterdir()
    assert sorted(os.listdir(session)) == ["runs.csv", "session.json", "steps.csv"]


def test_a_full_folder_for_temporary_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    prefix = unshared("-m", "mount -t tmpfs -o size=128k tmpfs tmp")
    command = mgpubench(*DDP, cwd=tmp_path, prefix=prefix, env={"TMPDIR": str(tmp_path / "tmp")})
    assert command.wait() == 1
    assert f"no space is left for temporary files in {tmp_path / 'tmp'}" in command.err
    assert "TMPDIR" in command.err
    assert "Traceback" not in command.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("--help",), ("compare", EXAMPLE)], ids=str)
def test_a_stdout_that_cannot_be_written_is_told_in_a_line(
    tmp_path: Path, arguments: tuple[object, ...]
) -> None:
    command = mgpubench(*arguments, cwd=tmp_path, prefix=within("exec > /dev/full"))
    assert command.wait() == 1
    assert command.err == "error: stdout cannot be written: No space left on device\n"


def test_results_are_named_even_if_the_tables_cannot_be_written(tmp_path: Path) -> None:
    command = mgpubench(*TINY, "--mode", "single", cwd=tmp_path, prefix=within("exec > /dev/full"))
    assert command.wait() == 1
    assert "results: out/" in command.err
    assert "error: stdout cannot be written" in command.err
    assert "Traceback" not in command.err


@pytest.mark.parametrize("encoding", ["ascii:strict", "cp1252:strict"])
def test_a_console_of_few_characters_gets_every_number(tmp_path: Path, encoding: str) -> None:
    numbers = []
    for name in (encoding, "utf-8"):
        command = mgpubench("compare", EXAMPLE, cwd=tmp_path, env={"PYTHONIOENCODING": name})
        assert command.wait() == 0
        numbers.append(re.findall(r"[0-9.]+", command.out))
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize("delay_s", [0.05, 0.1, 0.2])
def test_ctrl_c_in_the_first_moments_leaves_no_traceback(start: Start, delay_s: float) -> None:
    command = start("compare", EXAMPLE)
    time.sleep(delay_s)
    command.popen.send_signal(signal.SIGINT)
    assert command.wait(10) in (0, 1, 130, -signal.SIGINT)
    # Before a line of ours runs, Python itself is interrupted, and says so in its own way.
    assert "mgpubench" not in command.err.partition("Traceback")[2]
