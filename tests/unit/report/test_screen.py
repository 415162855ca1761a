"""The live screen fits into any terminal, and gives it back."""

from __future__ import annotations

import io
import os
import signal
from typing import Any

import pytest
from rich.console import Console

from mgpubench.report import live_screen
from mgpubench.report.live_screen import LiveScreen
from mgpubench.report.screen import BLOCKS, ScreenState, draw, sparkline
from mgpubench.results.telemetry import MACHINE, Sample

GIB = 2**30
ENTER, LEAVE, SHOW_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


def sample(device: str, **figures: Any) -> Sample:
    unknown: dict[str, Any] = dict.fromkeys(Sample._fields)
    texts = {"device": device, "error": "", "clock_reasons": ""}
    return Sample(**{**unknown, **texts, "clock_s": 0.0, **figures})


GPU = {
    "utilization": 0.98,
    "memory_used_bytes": 40.5 * GIB,
    "memory_total_bytes": 80.0 * GIB,
    "temperature_c": 64.0,
    "power_w": 612.0,
    "sm_clock_mhz": 1755.0,
    "clock_reasons": "idle;power-limit",
}
EIGHT = {f"GPU-{number}": sample(f"GPU-{number}", **GPU) for number in range(8)}
CPU = sample(MACHINE, utilization=0.5, own_cpu_share=0.25, own_memory_bytes=3.0 * GIB)


def state(**changes: Any) -> ScreenState:
    values: dict[str, Any] = {
        "title": "run 3/18 (round 1) ddp x8",
        "completed": 57,
        "total": 2160,
        "elapsed_s": 75.0,
        "rates": [100.0, 200.0, 400.0],
        "note": "12.3 steps/s",
        "devices": {MACHINE: CPU, **EIGHT},
        "messages": [f"message {number}" for number in range(30)],
    }
    return ScreenState(**{**values, **changes})


def test_eight_gpus_are_on_a_screen_of_80_by_24() -> None:
    lines = draw(state(), 80, 24)
    assert lines[0] == "run 3/18 (round 1) ddp x8"
    assert lines[1] == "step 57 of 2160, 1 min 15 s, 12.3 steps/s"
    assert lines[2].endswith(" 400.0 samples/s")
    assert lines[4] == ("GPU   load     memory GiB   temp   power     clock  held back by")
    assert lines[5] == "0     98 %      40.5/80.0   64 C   612 W  1755 MHz  power-limit"
    assert [line[0] for line in lines[5:13]] == list("01234567")
    assert lines[13] == "CPU   50 %              -   own processes: 25 %, 3.0 GiB"
    assert lines[-1] == "message 29"
    assert len(lines) == 24


def test_a_narrow_screen_has_fewer_columns() -> None:
    lines = draw(state(), 59, 24)
    assert lines[1] == "step 57 of 2160, 1 min 15 s"
    assert lines[4] == "GPU   load   temp   power"
    assert lines[5] == "0     98 %   64 C   612 W"
    assert lines[13] == "CPU   50 %  own 25 %"


@pytest.mark.parametrize("width", [1, 3, 10, 25, 59, 60, 80, 200])
@pytest.mark.parametrize("height", [1, 2, 13, 15, 24])
def test_it_never_exceeds_the_terminal(width: int, height: int) -> None:
    lines = draw(state(title="a\x1b[31m" * 50), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert "\x1b" not in "".join(lines)


def test_a_lost_gpu_and_unknown_figures_are_shown_as_such() -> None:
    lost = sample("GPU-0", error="lost (NVML error 15)")
    lines = draw(state(devices={"GPU-0": lost, "GPU-1": sample("GPU-1")}), 80, 24)
    assert lines[5] == "0   lost (NVML error 15)"
    assert lines[6].split() == ["1", "-", "-", "-", "-", "-"]


def test_without_gpus_there_is_the_machine_alone() -> None:
    lines = draw(state(devices={MACHINE: CPU}, messages=[]), 80, 24)
    assert len(lines) == 5
    assert lines[4].startswith("CPU ")


@pytest.mark.parametrize(
    ("values", "width", "blocks"),
    [
        ([], 5, ""),
        ([0.0, 0.0], 5, ""),
        ([7.0, 0.0], 5, BLOCKS[7] + BLOCKS[0]),
        ([1.0, 2.0, 7.0], 2, BLOCKS[2] + BLOCKS[7]),
    ],
)
def test_a_sparkline_is_relative_to_its_highest_value(
    values: list[float], width: int, blocks: str
) -> None:
    assert sparkline(values, width) == blocks


# The terminal.


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A screen whose terminal is a text, and whose clock is `screen.now_s`."""
    shown = LiveScreen()
    terminal = io.StringIO()
    shown.console = Console(
        file=terminal, force_terminal=True, width=80, height=24, markup=False, highlight=False
    )
    shown.now_s = 100.0  # type: ignore[attr-defined]
    monkeypatch.setattr(live_screen.time, "monotonic", lambda: shown.now_s)  # type: ignore[attr-defined]
    yield shown
    shown.close()


def text_of(screen: LiveScreen) -> str:
    return screen.console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_screen_begins_with_the_first_sample_and_ends_with_all_lines(screen: Any) -> None:
    screen.line("before")
    assert ENTER not in text_of(screen)
    screen.show_devices({MACHINE: CPU})
    screen.line("meanwhile")
    before = text_of(screen)
    screen.close()
    assert before.index("before") < before.index(ENTER)
    end = text_of(screen)[len(before) :]
    assert end.index(LEAVE) < end.index("meanwhile")
    assert SHOW_CURSOR in end
    assert signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL


def test_it_is_drawn_once_a_second_at_most_and_notes_the_rate(screen: Any) -> None:
    """30 steps of 8 samples in 2 s are 120 samples/s."""
    screen.show_devices({MACHINE: CPU})
    size = len(text_of(screen))
    screen.update(completed=10, total=100, samples_per_step=8)
    assert len(text_of(screen)) == size
    screen.now_s += 2.0
    screen.update(completed=30)
    assert len(text_of(screen)) > size
    assert "120.0 samples/s" in text_of(screen)


def test_a_suspended_program_gives_the_terminal_back(
    screen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(os, "kill", lambda pid, signum: seen.append(text_of(screen)))
    screen.show_devices({MACHINE: CPU})
    handler: Any = signal.getsignal(signal.SIGTSTP)
    handler(signal.SIGTSTP, None)
    (while_suspended,) = seen
    assert while_suspended.count(ENTER) == while_suspended.count(LEAVE) == 1
    assert text_of(screen).count(ENTER) == 2
    assert signal.getsignal(signal.SIGTSTP) == handler
