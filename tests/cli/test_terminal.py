"""What a terminal gets: a bar, whole numbers at any width, and no unwanted colours."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import nvml_environment

EXAMPLE = Path(__file__).parents[2] / "results" / "example"
COLOUR = re.compile(r"\x1b\[[0-9;]*\b(3[0-9]|4[0-9]|9[0-7]|10[0-7])\b[0-9;]*m")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
TINY = (
    *("run", "--device", "cpu", "--model", "tiny-cnn", "--image-size", "32", "-b", "4"),
    *("--mode", "single", "--warmup-steps", "1", "--steps", "4", "--rounds", "1", "--out", "out"),
)


@dataclass(frozen=True)
class Shown:
    """All that a terminal was sent."""

    exit_code: int
    text: str

    @property
    def plain(self) -> str:
        return ESCAPES.sub("", self.text)


def in_terminal(*arguments: str, cwd: Path, columns: int = 100, **env: str) -> Shown:
    """Run `mgpubench` with a terminal of its own."""
    ours, its = os.openpty()
    termios.tcsetwinsize(its, (40, columns))
    unset = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM", "CI"}
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    process = subprocess.Popen(
        [sys.executable, "-m", "mgpubench", *arguments],
        cwd=cwd,
        env={**inherited, "TERM": "xterm-256color", **env},
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    data = b""
    with contextlib.suppress(OSError):  # EIO: the other side is closed
        while chunk := os.read(ours, 2**16):
            data += chunk
    os.close(ours)
    return Shown(process.wait(60), data.decode())


def compare(tmp_path: Path, columns: int = 100, **env: str) -> Shown:
    shown = in_terminal("compare", str(EXAMPLE), cwd=tmp_path, columns=columns, **env)
    assert shown.exit_code == 0
    return shown


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return compare(tmp_path_factory.mktemp("wide"), columns=250)


@pytest.mark.parametrize("columns", [20, 60, 80, 132])
def test_numbers_are_whole_at_any_width(tmp_path: Path, columns: int, wide: Shown) -> None:
    numbers = re.compile(r"\d[\d.]*")
    assert numbers.findall(compare(tmp_path, columns).plain) == numbers.findall(wide.plain)


def test_no_color_means_no_colour_and_empty_means_unset(tmp_path: Path, wide: Shown) -> None:
    """C65."""
    coloured = bool(COLOUR.search(compare(tmp_path).text))
    assert not COLOUR.search(compare(tmp_path, NO_COLOR="1").text)
    assert bool(COLOUR.search(compare(tmp_path, NO_COLOR="").text)) == coloured


def test_a_dumb_terminal_gets_no_escape_codes(tmp_path: Path) -> None:
    """C65."""
    assert "\x1b" not in compare(tmp_path, TERM="dumb").text


@pytest.fixture(scope="module")
def barred(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """A run in a terminal, with its bar."""
    return in_terminal(*TINY, cwd=tmp_path_factory.mktemp("barred"), NO_COLOR="1")


def test_a_run_in_a_terminal_gives_the_cursor_back(barred: Shown) -> None:
    assert barred.exit_code == 0
    assert "loading torch" in barred.plain
    assert barred.text.rindex("\x1b[?25h") > barred.text.rindex("\x1b[?25l")
    assert "results: out/" in barred.plain.splitlines()[-2]


def test_a_bar_has_no_colour_with_no_color(barred: Shown) -> None:
    """C65."""
    assert not COLOUR.search(barred.text)


def test_a_live_screen_shows_the_gpus_and_leaves_the_lines(tmp_path: Path) -> None:
    nvml = nvml_environment(gpus=2)
    arguments = [*TINY[:-2], "--steps", "400", "--live", "--out", "out"]
    shown = in_terminal(*arguments, cwd=tmp_path, columns=80, **nvml)
    assert shown.exit_code == 0, shown.plain
    enter, leave = shown.text.index("\x1b[?1049h"), shown.text.rindex("\x1b[?1049l")
    on_screen, after = shown.text[enter:leave], shown.text[leave:]
    assert "run 1/1 (round 1) single x1" in on_screen
    assert "GPU   load     memory GiB" in on_screen
    assert "1755 MHz  power-limit" in on_screen
    assert shown.text.rindex("\x1b[?25h") > shown.text.rindex("\x1b[?25l")
    assert "run 1/1 (round 1) single x1: " in after
    assert "results: out/" in after
    (table,) = tmp_path.glob("out/*/telemetry.csv")
    assert "GPU-1" in table.read_text()


def test_without_a_terminal_there_is_no_screen(
    run_here: Callable[..., Any], tmp_path: Path
) -> None:
    """And without telemetry neither."""
    ran = run_here(*TINY, "--live", cwd=tmp_path)
    assert ran.exit_code == 0
    assert ran.err.startswith("note: --live needs a terminal on stderr; there are lines instead\n")
    assert "\x1b" not in ran.err
    refused = run_here(*TINY, "--live", "--no-telemetry", cwd=tmp_path)
    assert refused.exit_code == 2
    assert refused.err.startswith("error: --live and --no-telemetry exclude each other\n")
