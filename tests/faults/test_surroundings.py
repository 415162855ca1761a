"""Faults around a run: limits, disks, networks, other processes, variables, the clock.

Each needs a process of its own.
"""

from __future__ import annotations

import contextlib
import csv
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mgpubench.analysis.compare import compare
from mgpubench.results.read import read_runs, read_sessions
from tests.faults.conftest import rows, statuses
from tests.processes import Command, mgpubench, wait_until

pytestmark = pytest.mark.faults

TINY = (
    *("run", "--device", "cpu", "--model", "tiny-cnn", "--image-size", 32, "-b", 4),
    *("--warmup-steps", 1, "--steps", 4, "--rounds", 1, "--out", "out"),
)
DDP = (*TINY, "--mode", "ddp", "--gpus", 2)
EXAMPLE = Path(__file__).parents[2] / "results" / "example"
Start = Callable[..., Command]
Report = Callable[..., str]
ROW = "finished runs; a row says why this one failed"
NOTHING = "nothing was started"
ALL = "all; the run goes on"


def within(script: str) -> tuple[str, ...]:
    """A shell script that ends by starting the command."""
    return ("sh", "-c", f'{script} && exec "$@"', "sh")


def unshared(flag: str, script: str) -> tuple[str, ...]:
    """The same with mounts, a host name or a network of its own; skips the test if it cannot."""
    tool = shutil.which("unshare")
    if not tool or os.getuid() != 0 or subprocess.run([tool, flag, "true"]).returncode:
        pytest.skip(f"needs root and unshare {flag}")
    return (tool, flag, *within(script))


# Limits.


def test_too_few_open_files_are_named(tmp_path: Path, report: Report) -> None:
    command = mgpubench(*DDP, cwd=tmp_path, prefix=within("ulimit -n 12"))
    report("too few open files (ulimit -n 12)", command, TOO_MANY_FILES, code=1, kept=NOTHING)
    assert "ulimit" in command.err


TOO_MANY_FILES = "error: only 12 files may be open at once, and mgpubench needs 32"


def test_memory_that_the_shell_refuses_is_out_of_memory(tmp_path: Path, report: Report) -> None:
    """Torch alone fits within the limit on addresses, and this batch does not."""
    command = mgpubench(
        *(*DDP, "--image-size", 224, "-b", 400_000),
        cwd=tmp_path,
        prefix=within("ulimit -v 10000000"),
    )
    name = "more memory is needed than the limit allows (ulimit -v)"
    report(name, command, r"error: ddp x2: rank \d: .*: out of memory: ", code=1, kept=ROW)
    assert "hint: Use less than --batch-per-gpu 400000 or --image-size 224." in command.err
    assert statuses(tmp_path) == ("failed",)


@pytest.mark.parametrize(
    ("mount", "name", "words"),
    [
        ("size=2m", "a /dev/shm of 2 MB", r"/dev/shm \(2 MB\) is too small"),
        ("ro", "a /dev/shm that is read-only", "/dev/shm cannot be written"),
    ],
)
def test_a_small_or_read_only_dev_shm_is_named(
    photos: Callable[..., Path], tmp_path: Path, report: Report, mount: str, name: str, words: str
) -> None:
    """C12. Loading in the ranks themselves needs no /dev/shm."""
    photos(cat=20, dog=20)
    options = (*TINY, "--image-size", 224, "-b", 8, "--mode", "single", "--data", "photos")
    prefix = unshared("-m", f"mount -t tmpfs -o {mount} tmpfs /dev/shm")
    command = mgpubench(*options, "--workers-per-gpu", 2, cwd=tmp_path, prefix=prefix)
    report(name, command, f"error: single x1: rank 0: {words}", code=1, mode="single", kept=ROW)
    assert "--workers-per-gpu 0" in command.err
    assert "--shm-size" in command.err
    if mount == "ro":
        without = mgpubench(*options, "--workers-per-gpu", 0, cwd=tmp_path, prefix=prefix)
        assert without.wait() == 0, without.err


# Disks.


def test_a_read_only_out_is_refused_before_anything_starts(tmp_path: Path, report: Report) -> None:
    """C07."""
    (tmp_path / "out").mkdir()
    prefix = unshared("-m", "mount -t tmpfs -o ro tmpfs out")
    command = mgpubench(*DDP, cwd=tmp_path, prefix=prefix)
    name = "a disk that is read-only"
    report(
        name,
        command,
        "error: results cannot be written to out: out is not writable",
        code=2,
        kept=NOTHING,
    )


def test_a_disk_that_fills_up_during_the_run_keeps_what_was_written(
    tmp_path: Path, report: Report
) -> None:
    """The steps do not fit, so none of them is kept. Session.json and both headers are."""
    (tmp_path / "out").mkdir()
    # The folder is copied from inside, since the mount ends with the process.
    copy = "&& cp -r out kept; cat code; exit $(cat code)"
    script = 'mount -t tmpfs -o size=48k tmpfs out; "$@"; echo $? > code; true ' + copy
    command = Command(
        *(*TINY, "--mode", "single", "--steps", 600),
        cwd=tmp_path,
        prefix=(*unshared("-m", "true")[:2], "sh", "-c", script, "sh"),
    )
    name, says = "a disk that fills up during the run", "error: .*steps.csv cannot be written: No"
    report(name, command, says, code=1, mode="single", kept="what was written before")
    # What was measured is shown, since it is in no file.
    assert re.search(r"run 1/1 .*: [\d.]+ samples/s\n.*could not be saved", command.err)
    (steps,) = (tmp_path / "kept").glob("*/steps.csv")
    assert len(steps.read_text().splitlines()) == 1


def test_a_full_folder_for_temporary_files_is_named(tmp_path: Path, report: Report) -> None:
    (tmp_path / "tmp").mkdir()
    prefix = unshared("-m", "mount -t tmpfs -o size=128k tmpfs tmp")
    command = mgpubench(*DDP, cwd=tmp_path, prefix=prefix, env={"TMPDIR": str(tmp_path / "tmp")})
    says = f"error: no space is left for temporary files in {tmp_path / 'tmp'}"
    report("no space in TMPDIR", command, says, code=1, kept=NOTHING)
    assert "TMPDIR" in command.err


def test_a_folder_for_temporary_files_that_is_emptied_is_named(
    start: Start, tmp_path: Path, short_folder: Path, report: Report
) -> None:
    options = ("--steps", 500, "--rounds", 2)
    command = start(*TINY, *options, "--mode", "single", TMPDIR=str(short_folder))
    wait_until(lambda: statuses(tmp_path), 90, "the first run")
    for folder in short_folder.iterdir():
        shutil.rmtree(folder)
    says = r"error: temporary files in .*mgpubench-\w+ cannot be used: No such file or directory"
    name = "the folder for temporary files is emptied during the session"
    command.wait()
    report(name, command, says, code=1, mode="single", kept=ROW)
    assert statuses(tmp_path) == ("ok", "failed")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_log_that_cannot_be_written_does_not_end_the_session(
    tmp_path: Path, report: Report
) -> None:
    command = mgpubench(*TINY, "--mode", "single", cwd=tmp_path, prefix=within("exec 2>/dev/full"))
    name, kept = "stderr cannot be written (a log on a full disk)", "all; tables on stdout"
    report(name, command, None, code=0, mode="single", kept=kept)
    assert statuses(tmp_path) == ("ok",)
    assert "samples/s" in command.out


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_do_not_matter(tmp_path: Path, closed: str) -> None:
    command = mgpubench(*TINY, "--mode", "single", cwd=tmp_path, prefix=within(f"exec {closed}"))
    assert command.wait() == 0, command.err
    assert statuses(tmp_path) == ("ok",)


def test_a_reader_who_closes_the_pipe_is_not_an_error(tmp_path: Path) -> None:
    script = f"{sys.executable} -m mgpubench compare {EXAMPLE} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == ""


def test_the_users_own_modules_do_not_hide_pythons(tmp_path: Path) -> None:
    """As with the installed command, which does not search for modules in the current folder."""
    for name in ("random", "signal", "queue", "csv"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not me')")
    command = mgpubench(*DDP, cwd=tmp_path, env={"PYTHONSAFEPATH": "1"})
    assert command.wait() == 0, command.err


def test_ignored_signals_of_children_do_not_matter(tmp_path: Path, short_folder: Path) -> None:
    script = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    command = mgpubench(
        *(*TINY, "--mode", "single"),
        cwd=tmp_path,
        prefix=(sys.executable, "-c", script),
        env={"TMPDIR": str(short_folder)},
    )
    assert command.wait() == 0, command.err
    assert os.listdir(short_folder) == []


# Networks and other processes.


def test_a_host_name_that_does_not_resolve_does_not_matter(tmp_path: Path, report: Report) -> None:
    """C55."""
    command = mgpubench(*DDP, cwd=tmp_path, prefix=unshared("-u", "hostname nohost-xyz"))
    report("a host name that does not resolve", command, "results: ", code=0, kept=ALL)
    assert "nohost" not in command.err


def test_the_loopback_interface_is_enough(tmp_path: Path, report: Report) -> None:
    """C74."""
    command = mgpubench(*DDP, cwd=tmp_path, prefix=unshared("-n", "ip link set lo up"))
    report("no network except loopback", command, "results: ", code=0, kept=ALL)


def test_a_loopback_interface_that_is_down_is_named(tmp_path: Path, report: Report) -> None:
    command = mgpubench(*DDP, cwd=tmp_path, prefix=unshared("-n", "true"))
    says = r"error: ddp x2: rank \d: .*Unable to find address for: lo"
    report("the loopback interface is down", command, says, code=1, kept=ROW)
    assert "hint: The loopback interface is down" in command.err


def test_left_over_variables_of_a_launcher_do_no_harm(
    start: Start, tmp_path: Path, report: Report
) -> None:
    """C18: torch would wait for a store that no process serves. Their port is in use, too."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = start(
            *(*TINY, "--mode", "all", "--gpus", 2),
            RANK="3",
            LOCAL_RANK="3",
            WORLD_SIZE="8",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(taken.getsockname()[1]),
            TORCHELASTIC_USE_AGENT_STORE="True",
            SLURM_PROCID="0",
        )
        name = (
            "RANK, WORLD_SIZE, MASTER_*, TORCHELASTIC_*, SLURM_* left over, and the port is in use"
        )
        report(name, command, "results: ", code=0, mode="all", kept=ALL)
    assert sorted((row["mode"], row["num_devices"]) for row in rows(tmp_path)) == [
        ("ddp", "2"), ("dp", "2"), ("single", "1"),
    ]  # fmt: skip


def test_mpirun_is_refused_by_name(start: Start, tmp_path: Path, report: Report) -> None:
    command = start(*DDP, OMPI_COMM_WORLD_SIZE="2")
    says = "error: started by mpirun as one of 2 processes"
    report("started by mpirun, as one of several", command, says, code=2, kept=NOTHING)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def started() -> Iterator[list[Command]]:
    """Commands that are ended when the test ends."""
    commands: list[Command] = []
    yield commands
    for command in commands:
        command.kill()


NUM_AT_ONCE = 8


def test_eight_calls_at_once_share_a_folder(
    tmp_path: Path, started: list[Command], report: Report
) -> None:
    """C36."""
    out = tmp_path / "out"
    for number in range(NUM_AT_ONCE):
        folder = tmp_path / str(number)
        folder.mkdir()
        options = ("--mode", "single", "--steps", 1, "--out", out)
        started.append(Command(*TINY, *options, cwd=folder))
    assert [command.wait() for command in started] == [0] * NUM_AT_ONCE
    name = "eight calls at once with the same --out"
    report(
        name, started[-1], "results: ", code=0, mode="single", kept="all, each in its own session"
    )
    folders = list(out.iterdir())
    assert len(folders) == NUM_AT_ONCE
    for folder in folders:
        for name, num_rows in (("runs.csv", 1), ("steps.csv", 2)):
            with (folder / name).open(newline="", encoding="utf-8") as file:
                lines = list(csv.reader(file))
            assert len(lines) == 1 + num_rows
            assert len({len(line) for line in lines}) == 1


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, now);
    if (clock == CLOCK_REALTIME && access("set-back", F_OK) == 0) now->tv_sec -= 3600;
    return code;
}
"""
"""For LD_PRELOAD: a wall clock that is set back by an hour once there is a file set-back."""


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc to make a clock that is set back")
def test_a_clock_that_is_set_back_does_not_change_the_figures(
    start: Start, tmp_path: Path, report: Report
) -> None:
    """Durations use the monotonic clock, and only started_at uses the wall clock."""
    (tmp_path / "clock.c").write_text(CLOCK)
    library = str(tmp_path / "clock.so")
    compiler = ["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "clock.c", "-ldl"]
    subprocess.run(compiler, check=True)
    command = start(*DDP, "--steps", 10, "--rounds", 4, LD_PRELOAD=library)
    wait_until(lambda: statuses(tmp_path), 180, "the first run")
    (tmp_path / "set-back").touch()
    name = "the clock is set back by an hour during the session"
    report(name, command, "results: ", code=0, kept="all; durations use the monotonic clock")
    made = rows(tmp_path)
    assert made[-1]["started_at"] < made[0]["started_at"]
    for row in made:
        assert 0 < float(row["window_s"]) < 60
        assert float(row["step_time_median_s"]) > 0
        assert "clock-mismatch" not in row["findings"]


# Resuming, safety, consoles.


def test_a_session_whose_parent_was_killed_is_resumed(start: Start, tmp_path: Path) -> None:
    """All rounds that are not complete are made again, and no others."""
    plan = (*TINY, "--mode", "all", "--gpus", 2, "--rounds", 5, "--steps", 10)
    command = start(*plan)

    wait_until(lambda: len(rows(tmp_path)) >= 7, 60, "seven rows")
    command.family()
    os.kill(command.popen.pid, signal.SIGKILL)
    command.wait()
    command.assert_none_left()
    made = len(rows(tmp_path))
    assert 7 <= made < 15
    (folder,) = (tmp_path / "out").iterdir()
    resumed = mgpubench("run", "--resume", folder, cwd=tmp_path)
    assert resumed.wait() == 0, resumed.err
    found = read_runs(folder / "runs.csv").records
    whole = 3 * (made // 3)
    assert [record.position for record in found] == [*range(1, made + 1), *range(whole + 1, 16)]
    assert [record.sitting for record in found] == [1] * made + [2] * (15 - whole)
    counting = read_sessions([folder]).records
    assert all(record.is_ok for record in counting)
    assert sorted((record.round, record.mode) for record in counting) == sorted(
        (number, mode) for number in range(1, 6) for mode in ("single", "dp", "ddp")
    )
    assert pairs(folder) == 5
    again = mgpubench("run", "--resume", folder, cwd=tmp_path)
    assert again.wait() == 0
    assert "nothing is missing" in again.err
    assert read_runs(folder / "runs.csv").records == found


def pairs(folder: Path) -> int:
    """Rounds in which ddp can be compared with dp."""
    ddp = next(row for row in compare(read_sessions([folder]).records, None, 0.02) if row.versus_dp)
    assert ddp.versus_dp is not None
    assert ddp.versus_dp.comparison is not None
    return ddp.versus_dp.comparison.pairs


def test_a_session_that_is_killed_while_it_is_resumed_keeps_its_pairs(
    start: Start, tmp_path: Path
) -> None:
    """Of the second round the first sitting has more runs than the one that was killed."""
    # The pauses leave time to kill it after its first run.
    plan = (*TINY, "--mode", "all", "--gpus", 2, "--rounds", 2, "--cool-down", 1)
    first = start(*plan)
    assert first.wait() == 0, first.err
    (folder,) = (tmp_path / "out").iterdir()
    path = folder / "runs.csv"
    lines = path.read_text().splitlines(keepends=True)
    lost = next(line for line in lines[4:] if ",single," in line)
    path.write_text("".join(line for line in lines if line != lost))
    kept = path.read_text()
    assert pairs(folder) == 2

    command = start("run", "--resume", folder)
    wait_until(lambda: len(rows(tmp_path)) > 5, 60, "the first run of the second sitting")
    command.family()
    command.popen.kill()
    command.wait()
    command.assert_none_left()
    assert path.read_text().startswith(kept)
    assert [row["sitting"] for row in rows(tmp_path)] == ["1"] * 5 + ["2"]
    assert pairs(folder) == 2

    last = start("run", "--resume", folder)
    assert last.wait() == 0, last.err
    assert path.read_text().startswith(kept)
    assert [row["sitting"] for row in rows(tmp_path)] == ["1"] * 5 + ["2"] + ["3"] * 3
    assert pairs(folder) == 2
    assert sum(record.is_ok for record in read_sessions([folder]).records) == 6
    with (folder / "steps.csv").open(newline="") as file:
        assert {row["run_id"] for row in csv.DictReader(file)} == {
            row["run_id"] for row in rows(tmp_path)
        }


def test_nothing_listens_beyond_this_machine(start: Start, tmp_path: Path) -> None:
    command = start(*DDP, "--steps", 100_000)
    wait_until(lambda: len(command.ranks()) == 2 and listening(command), 60, "listening ranks")
    assert set(listening(command)) == {"127.0.0.1"}
    command.popen.send_signal(signal.SIGTERM)
    assert command.wait(15) == 143


def listening(command: Command) -> list[str]:
    """The addresses on which the processes of a command listen."""
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


def test_nothing_is_written_outside_out_and_nothing_stays_in_tmpdir(
    tmp_path: Path, short_folder: Path
) -> None:
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    env = {name: str(tmp_path / "home") for name in ("HOME", "XDG_CACHE_HOME", "TORCH_HOME")}
    command = mgpubench(*DDP, cwd=tmp_path / "work", env={**env, "TMPDIR": str(short_folder)})
    assert command.wait() == 0, command.err
    assert os.listdir(tmp_path / "home") == os.listdir(short_folder) == []
    assert sorted(os.listdir(tmp_path / "work")) == ["out", "stderr.txt", "stdout.txt"]
    (session,) = (tmp_path / "work" / "out").iterdir()
    assert sorted(os.listdir(session)) == [
        *("runs.csv", "session.json", "steps.csv", "telemetry.csv"),
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("--help",), ("compare", EXAMPLE)], ids=str)
def test_a_stdout_that_cannot_be_written_is_reported_in_a_line(
    tmp_path: Path, arguments: tuple[object, ...]
) -> None:
    command = mgpubench(*arguments, cwd=tmp_path, prefix=within("exec > /dev/full"))
    assert command.wait() == 1
    assert command.err.startswith("error: stdout cannot be written: No space left on device\nhint")


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
    # Before our first line runs, the signal interrupts Python itself, which prints its own message.
    assert "mgpubench" not in command.err.partition("Traceback")[2]
