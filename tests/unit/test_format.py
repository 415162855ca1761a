"""How numbers look: four digits, no exponents, and a hyphen for what is not known."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mgpubench.format import (
    format_count,
    format_duration,
    format_gibibytes,
    format_interval,
    format_milliseconds,
    format_percent,
    format_rate,
    format_ratio,
    format_size,
    plain,
    shell_path,
    shown_path,
)


@pytest.mark.parametrize(
    "show",
    [
        format_rate,
        format_ratio,
        format_interval,
        format_percent,
        format_milliseconds,
        format_duration,
        format_gibibytes,
    ],
)
def test_the_unknown_is_a_hyphen(show: Callable[[Any], str]) -> None:
    assert show(None) == "-"


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0.0, "0.000"),
        (0.001234, "0.001234"),
        (0.99994, "0.9999"),
        (0.99996, "1.000"),
        (1.0, "1.000"),
        (9.9994, "9.999"),
        (9.9996, "10.00"),
        (12.344, "12.34"),
        (123.45, "123.5"),
        (999.94, "999.9"),
        (999.96, "1000"),
        (1234.4, "1234"),
        (1234.6, "1235"),
        (9_876_543.2, "9876543"),
    ],
)
def test_rates_have_four_digits_and_no_exponent(rate: float, text: str) -> None:
    assert format_rate(rate) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0001, "0.1000"), (0.0123, "12.30"), (0.5, "500.0"), (12.3456, "12346")]
)
def test_milliseconds_are_made_of_seconds(seconds: float, text: str) -> None:
    assert format_milliseconds(seconds) == text


@pytest.mark.parametrize(("ratio", "text"), [(1.0, "1.000"), (0.99951, "1.000"), (3.9876, "3.988")])
def test_ratios_have_three_decimals(ratio: float, text: str) -> None:
    assert format_ratio(ratio) == text


def test_an_interval_has_both_ends() -> None:
    assert format_interval((1.2014, 1.2666)) == "1.201..1.267"


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0.0 %"), (0.123, "12.3 %"), (1.0, "100.0 %"), (-0.015, "-1.5 %")]
)
def test_percentages_are_of_one(share: float, text: str) -> None:
    assert format_percent(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (3725, "1 h 02 min"),
        (360_000, "100 h 00 min"),
    ],
)
def test_durations_change_their_units_at_60(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0.00"), (2**30, "1.00"), (10**9, "0.93"), (85_899_345_920, "80.00")],
)
def test_memory_is_in_units_of_1024(num_bytes: int, text: str) -> None:
    assert format_gibibytes(num_bytes) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs")])
def test_a_count_has_its_noun(count: int, text: str) -> None:
    assert format_count(count, "run") == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 bytes"),
        (2**20 - 1, "1048575 bytes"),
        (2**21, "2 MB"),
        (64 * 2**20, "64 MB"),
        (2**30 - 1, "1.0 GB"),
        (23.5 * 2**30, "23.5 GB"),
    ],
)
def test_sizes_are_1024_based_as_those_of_df_and_docker(num_bytes: int, text: str) -> None:
    assert format_size(num_bytes) == text


CAFE = os.fsdecode(b"my cat/caf\xe9.jpg")


@pytest.mark.parametrize(
    "name",
    [b"my cat/caf\xe9.jpg", b"it's \\ \xff1", b"a\nb", b"\x1b[2J", b"K\xc3\xa4fer\n", b"-\xe9"],
)
def test_a_shell_takes_a_name_that_cannot_be_shown(name: bytes) -> None:
    word = shell_path(Path(os.fsdecode(name)))
    assert word.isprintable()
    command = ["bash", "-c", f"printf %s {word}"]
    answer = subprocess.run(command, capture_output=True, check=True).stdout
    assert answer.removeprefix(b"./") == name
    assert shown_path(os.fsdecode(name)).isprintable()


def test_a_name_that_is_not_utf8_is_shown_as_a_shell_takes_it() -> None:
    assert shown_path(CAFE) == r"$'my cat/caf\xe9.jpg'"
    assert shown_path("my cat/1.jpg") == "my cat/1.jpg"
    message = f"cannot read {CAFE.removeprefix('my ')}: it is empty"
    assert plain(message) == r"cannot read $'cat/caf\xe9.jpg': it is empty"
    assert plain("\x1b[2J\ud800") == "?[2J?"


def test_a_name_is_the_same_text_in_every_locale() -> None:
    name_of = "import os; from mgpubench.format import in_utf8; name = os.listdir()[0]"
    script = f"{name_of}; print(ascii(in_utf8(name)))"
    with tempfile.TemporaryDirectory() as folder:
        for name, text in ((b"caf\xe9", r"'caf\\xe9'"), ("caf\u00e9".encode(), r"'caf\xe9'")):
            os.mkdir(os.path.join(os.fsencode(folder), name))
            for locale in (
                {"LC_ALL": "C.UTF-8"},
                {"LC_ALL": "C"},
                {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            ):
                shown = subprocess.run(
                    [sys.executable, "-c", script],
                    cwd=folder,
                    env={"PYTHONPATH": str(Path(__file__).parents[2]), **locale},
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout.strip()
                assert shown == text
            os.rmdir(os.path.join(os.fsencode(folder), name))


@pytest.mark.parametrize(
    ("path", "word"), [("out/s", "out/s"), ("my out/s", "'my out/s'"), ("-x/s", "./-x/s")]
)
def test_a_path_is_a_word_of_a_command_and_never_an_option(path: str, word: str) -> None:
    assert shell_path(Path(path)) == word
