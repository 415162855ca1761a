"""What a person sees on stderr while a session runs."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable

import pytest

from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.errors import RunFailed, SessionEnded
from mgpubench.report import progress
from mgpubench.report.progress import SessionDisplay
from tests.conftest import make_run_record


class Clock:
    """The monotonic clock, set by the test."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("term", "columns", "has_bar"),
    [("xterm", "80", True), ("xterm", "79", False), ("dumb", "200", False)],
)
def test_a_bar_is_for_terminals_that_can_show_all_of_it(
    term: str,
    columns: str,
    has_bar: bool,
    machine: Callable[..., Machine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C65: not for one that cannot move its cursor, or in which the bar would truncate numbers."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = SessionDisplay(verbose=False)
    try:
        shown.add_runs(make_plan(Request(gpus=(2,), modes=("ddp",), rounds=1), machine(2)).runs)
        shown.notice("a note")
    finally:
        shown.close()
    text = sys.stderr.getvalue()
    assert ("\x1b[?25l" in text) == has_bar
    assert "note: a note\n" in text


@pytest.mark.parametrize("step_s", [0.001, 0.1, 1.0, 10.0, 60.0])
def test_a_log_of_a_thousand_steps_is_short_at_any_speed(
    step_s: float, clock: Clock, machine: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    """C65: fewer than 50 lines, even if a step takes a minute."""
    request = Request(gpus=(2,), modes=("ddp",), steps=980, rounds=1)
    plan = make_plan(request, machine(2))
    shown = SessionDisplay(verbose=False)
    shown.add_runs(plan.runs)
    shown.begin_run(plan.runs[0])
    for step in range(1000):
        clock.now_s += step_s
        shown.on_steps(step)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) < 50
    for line in lines[1:]:
        assert re.fullmatch(
            r"run 1/1 \(round 1\) ddp x2: step \d+ of 1000, [\d.]+ steps/s \(.* left\)", line
        )


def test_a_run_that_takes_long_says_so_every_half_minute_at_first(
    clock: Clock, machine: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan(Request(gpus=(2,), modes=("ddp",), rounds=1), machine(2))
    shown = SessionDisplay(verbose=False)
    shown.add_runs(plan.runs)
    shown.begin_run(plan.runs[0])
    for _ in range(125):
        clock.now_s += 1
        shown.on_steps(0)
    assert (
        capsys.readouterr().err.splitlines()
        == ["run 1/1 (round 1) ddp x2: step 0 of 120, 0.000 steps/s"] * 4
    )


def test_runs_that_are_added_later_count_in_the_numbers_and_in_the_time_left(
    clock: Clock, machine: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    """Rounds of `--until`: one run of 120 steps took 60 s, and two more are to come."""
    plan = make_plan(Request(gpus=(2,), modes=("ddp",), rounds=3), machine(2))
    shown = SessionDisplay(verbose=False)
    shown.add_runs(plan.runs[:1])
    shown.begin_run(plan.runs[0])
    clock.now_s += 60
    shown.end_run(make_run_record("ddp", 100.0), None)
    shown.add_runs(plan.runs[1:])
    shown.begin_run(plan.runs[1])
    clock.now_s += 60
    shown.end_run(make_run_record("ddp", 100.0), None)
    assert capsys.readouterr().err.splitlines() == [
        "run 1/1 (round 1) ddp x2: 100.0 samples/s",
        "run 2/3 (round 2) ddp x2: 100.0 samples/s (1 min 00 s left)",
    ]


def test_a_run_of_a_variant_is_named_with_it(
    machine: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    parts = tuple(
        Request(gpus=(2,), modes=("ddp",), rounds=1, variant=name, variant_number=number)
        for number, name in enumerate(("default", "cap50"), start=1)
    )
    plan = make_plan(Request(rounds=1, variants=parts), machine(2))
    shown = SessionDisplay(verbose=False)
    shown.add_runs(plan.runs)
    for config in plan.runs:
        shown.begin_run(config)
        shown.end_run(make_run_record("ddp", 100.0), None)
    lines = capsys.readouterr().err.splitlines()
    assert sorted(line.partition(") ")[2] for line in lines) == [
        "ddp x2 (cap50): 100.0 samples/s",
        "ddp x2 (default): 100.0 samples/s",
    ]


def test_an_error_that_ends_the_command_is_left_to_the_command(
    machine: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    """Else it would be printed twice."""
    shown = SessionDisplay(verbose=False)
    runs = make_plan(Request(smoke=True, modes=("ddp",)), machine()).runs
    shown.add_runs(runs)
    for error in (SessionEnded("lost node 1", "hint"), RunFailed("no memory", "hint")):
        shown.begin_run(runs[0])
        shown.end_run(make_run_record("ddp", None, status="failed"), error)
    printed = capsys.readouterr().err
    assert printed.count(": failed") == 2
    assert "lost node 1" not in printed
    assert "error: no memory" in printed
