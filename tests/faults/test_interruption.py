"""Signals and kills against `mgpubench run` itself."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mgpubench.report.progress import SessionDisplay
from tests.conftest import Here
from tests.faults.cases import ENDLESS, Fault, Hurt, each_mode
from tests.faults.conftest import rows, statuses
from tests.processes import Command, Process, all_processes, wait_until

pytestmark = pytest.mark.faults

TINY = (
    *("run", "--device", "cpu", "--model", "tiny-cnn", "--image-size", 64, "-b", 4),
    *("--warmup-steps", 1, "--rounds", 1, "--out", "out"),
)
Start = Callable[..., Command]
Report = Callable[..., str]
LONG = (*TINY, "--steps", 100_000)


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


# In this process, except for the workers.


def interrupt(signum: signal.Signals) -> Hurt:
    """Send it to the main thread, in which `mgpubench run` runs and Python handles signals."""
    main = threading.main_thread().ident
    assert main is not None
    return lambda scene: signal.pthread_kill(main, signum)


ROW = "finished runs; a row with status=interrupted"
SIGNALS = (
    Fault(
        "Ctrl-C (SIGINT) in the warm-up",
        "error: interrupted by SIGINT",
        options=("--warmup-steps", 1_000_000),
        hurt=interrupt(signal.SIGINT),
        exit_code=130,
        statuses=("interrupted",),
        kept=ROW,
    ),
    Fault(
        "Ctrl-C (SIGINT) in the window",
        "error: interrupted by SIGINT",
        options=ENDLESS,
        hurt=interrupt(signal.SIGINT),
        exit_code=130,
        statuses=("interrupted",),
        kept=ROW,
    ),
    Fault(
        "SIGTERM",
        "error: interrupted by SIGTERM",
        options=ENDLESS,
        hurt=interrupt(signal.SIGTERM),
        exit_code=143,
        statuses=("interrupted",),
        kept=ROW,
    ),
    Fault(
        "SIGHUP: the terminal is closed",
        "error: interrupted by SIGHUP",
        options=ENDLESS,
        hurt=interrupt(signal.SIGHUP),
        exit_code=129,
        statuses=("interrupted",),
        kept=ROW,
    ),
)


@pytest.mark.parametrize(("fault", "mode"), each_mode(SIGNALS))
def test_a_signal_ends_the_run_with_its_code_and_a_row(
    fault: Fault, mode: str, try_fault: Callable[[Fault, str], None]
) -> None:
    try_fault(fault, mode)


def test_ctrl_c_between_two_runs(
    run_here: Callable[..., Here],
    tmp_path: Path,
    report: Report,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next run had not begun. Its row says that it was interrupted, so resuming makes it."""

    def end_run(display: SessionDisplay, *of_the_run: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(SessionDisplay, "end_run", end_run)
    command = run_here(*TINY, "--steps", 4, "--mode", "single", "--rounds", 3, cwd=tmp_path)
    name = "Ctrl-C (SIGINT) between two runs"
    report(name, command, "error: interrupted by SIGINT", code=130, mode="single", kept=ROW)
    assert statuses(tmp_path) == ("ok", "interrupted")
    assert "note: 1 finished run kept in out/" in command.err


def test_ctrl_c_in_the_pause_between_two_runs(
    run_here: Callable[..., Here], tmp_path: Path, report: Report
) -> None:
    """It does not wait for the end of the pause, and the run that comes next has not begun."""
    sent: list[float] = []
    main = threading.main_thread().ident
    assert main is not None

    def interrupt_the_pause() -> None:
        wait_until(lambda: statuses(tmp_path), 60, "the first run")
        time.sleep(0.5)
        sent.append(time.monotonic())
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt_the_pause, daemon=True)
    thread.start()
    options = ("--steps", 4, "--mode", "single", "--rounds", 3, "--cool-down", 600)
    command = run_here(*TINY, *options, cwd=tmp_path)
    thread.join()
    name = "Ctrl-C (SIGINT) in the pause between two runs (`--cool-down`)"
    report(
        *(name, command, "error: interrupted by SIGINT"),
        code=130,
        mode="single",
        kept="finished runs",
        since_s=sent[0],
    )
    assert command.ended_s - sent[0] < 5
    assert statuses(tmp_path) == ("ok",)
    assert "note: 1 finished run kept in out/" in command.err
    assert "; make the rest with: mgpubench run --resume out/" in command.err


# Whole processes.


def test_ctrl_c_twice_to_the_whole_group_with_loader_workers(
    start: Start, tmp_path: Path, photos: Callable[..., Path], report: Report
) -> None:
    """C19: what a terminal does for an impatient user."""
    command = start(
        *(*LONG, "--mode", "ddp", "--gpus", 2, "--workers-per-gpu", 2, "--data", photos()),
    )
    await_steps(command, 2)
    sent_s = time.monotonic()
    for _ in range(2):
        os.killpg(command.popen.pid, signal.SIGINT)
        time.sleep(0.1)
    name = "Ctrl-C twice, to the whole group, as a terminal does"
    report(name, command, "error: interrupted by SIGINT", code=130, kept=ROW, since_s=sent_s)
    command.assert_none_left()
    assert command.err.splitlines()[-1] == "error: interrupted by SIGINT"
    assert [(row["status"], row["throughput_samples_per_s"]) for row in rows(tmp_path)] == [
        ("interrupted", "")
    ]


@pytest.mark.parametrize("delay_s", [0.3, 1.0])
def test_ctrl_c_while_torch_is_loading(
    start: Start, tmp_path: Path, delay_s: float, report: Report
) -> None:
    command = start(*LONG, "--mode", "single")
    wait_until(lambda: len(command.family()) >= 2, 30, "the fork server")
    time.sleep(delay_s)
    sent_s = time.monotonic()
    os.killpg(command.popen.pid, signal.SIGINT)
    report(
        f"Ctrl-C {delay_s} s after torch began to load",
        command,
        "error: interrupted by SIGINT",
        code=130,
        mode="single",
        kept="nothing was started",
        since_s=sent_s,
    )
    command.assert_none_left()
    assert command.err == "error: interrupted by SIGINT\n"
    assert not (tmp_path / "out").exists()


def test_no_process_outlives_a_killed_parent(
    start: Start, short_folder: Path, photos: Callable[..., Path], report: Report
) -> None:
    """The parent cannot clean up after SIGKILL, so the ranks must notice its end by themselves."""
    command = start(
        *(*LONG, "--mode", "ddp", "--gpus", 2, "--data", photos()),
        TMPDIR=str(short_folder),
    )
    await_steps(command, 2)
    sent_s = time.monotonic()
    command.popen.kill()
    name = "SIGKILL to the parent only"
    kept = "finished runs; `--resume` makes the others"
    report(name, command, None, code=137, kept=kept, since_s=sent_s)
    command.assert_none_left(5)
    assert not [name for name in os.listdir(short_folder) if name.startswith("mgpubench-")]


def test_nothing_is_left_of_the_processes_of_a_run_that_succeeds(
    start: Start, tmp_path: Path
) -> None:
    command = start(*TINY, "--steps", 50, "--mode", "all")
    while command.popen.poll() is None:
        command.family()
        time.sleep(0.05)
    assert command.popen.returncode == 0
    assert len(command.seen) >= 4
    command.assert_none_left(5)
    assert not [p for p in all_processes() if str(tmp_path) in p.command]


def test_a_stopped_rank_does_not_outlive_a_killed_parent(start: Start) -> None:
    """It cannot watch the parent itself, so the kernel must end it."""
    command = start(*LONG, "--mode", "ddp", "--gpus", 2)
    ranks = await_steps(command, 2)
    os.kill(ranks[1].pid, signal.SIGSTOP)
    command.family()
    command.popen.kill()
    command.popen.wait()
    command.assert_none_left()
