"""docs/coming-from.md is true: what it names exists, and it names every flag."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

import click
import pytest

from mgpubench.cli import COMMANDS, cli

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
TEXT = PAGE.read_text(encoding="utf-8")

AIMES_FLAGS = """
    dp ddp dm ng pb up cpu m pt b gb eb geb gmb gas ne lr slr ldf cl op do do9 ag amp f pt2 bb se
    nw pm syn ni st tf ef in dn sd na bt bts w ce mi ad nb lb ln ev eo pl sc cf cfi le nt lp ri
    tdf edf vf v2n msl ds mql mal nbs nsd dlc wp ctf cef sca rnc
"""


def rows() -> list[list[str]]:
    """The cells of every row of the tables, without headers."""
    lines = [line for line in TEXT.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[-1] != "here"]


ROWS = rows()


def commands_in(text: str) -> list[list[str]]:
    """The words of every command: spans of code that begin with the name of one."""
    spans = [shlex.split(span) for span in re.findall(r"`([^`]+)`", text)]
    return [words for words in spans if words[0] in COMMANDS or any("--" in word for word in words)]


def check(words: list[str]) -> None:
    """Assert that a command exists, with its options, and their values where they are a choice."""
    name, *arguments = words
    command = cli.get_command(click.Context(cli), name)
    assert command is not None, f"there is no command {name}"
    options = {
        spelling: parameter
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for spelling in (*parameter.opts, *parameter.secondary_opts)
    }
    for word, following in itertools.pairwise([*arguments, "--"]):
        if not word.startswith("--"):
            continue
        assert word in options, f"{name} has no {word}"
        kind = options[word].type
        if isinstance(kind, click.Choice) and not following.startswith("--"):
            assert following in kind.choices


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].replace("`", ""))
def test_every_command_and_option_of_a_row_exists(row: list[str]) -> None:
    commands = commands_in(row[-1])
    for words in commands:
        check(words)


def test_the_check_sees_a_wrong_command_option_and_value() -> None:
    assert commands_in("`run --steps 5`, `x.py`, and `fly --high`") == [
        ["run", "--steps", "5"],
        ["fly", "--high"],
    ]
    check(["run", "--mode", "dp", "--precision", "fp32", "--compile"])
    with pytest.raises(AssertionError, match="no command fly"):
        check(["fly", "--high"])
    with pytest.raises(AssertionError, match="run has no --high"):
        check(["run", "--steps", "5", "--high"])
    with pytest.raises(AssertionError):
        check(["run", "--precision", "fp7"])


def test_every_flag_of_aimes_tool_has_one_place() -> None:
    flags = [cells for cells in ROWS if cells[0].startswith("`-")]
    named = [flag for cells in flags for flag in re.findall(r"`-(\w+)`", cells[0])]
    assert sorted(named) == sorted(AIMES_FLAGS.split())


def test_every_row_says_something() -> None:
    for row in ROWS:
        assert all(row), row
        assert len(row) == (3 if row[0].startswith("`-") else 2)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!http)([^)]+)\)", TEXT))))
def test_every_link_leads_to_a_file(link: str) -> None:
    assert (PAGE.parent / link).is_file()


@pytest.mark.parametrize("feature", ["EMA", "mixup", "AutoAugment"])
def test_what_is_not_here_is_said(feature: str) -> None:
    assert feature in TEXT.partition("## What is not here")[2]
