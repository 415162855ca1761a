"""Every command explains itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mgpubench import __version__
from mgpubench.cli import COMMANDS, cli


def command_named(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def test_the_commands_are_those_of_the_contract() -> None:
    assert sorted(COMMANDS) == [
        *("comm", "compare", "evaluate", "export", "info", "predict", "report", "run", "train")
    ]


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_names_every_command(flag: str) -> None:
    text = invoke(flag)
    for command in COMMANDS:
        assert f"  {command} " in text


def test_version() -> None:
    assert invoke("--version").split()[-1] == __version__


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_shows_all_its_options(command: str) -> None:
    assert invoke(command, "-h") == invoke(command, "--help")
    text = invoke(command, "-h")
    for parameter in command_named(command).params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            for name in parameter.opts:
                assert name in text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_all_its_options_have_help(command: str) -> None:
    found = command_named(command)
    assert found.help
    for parameter in found.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.help.strip() == parameter.help


def test_no_option_is_called_batch_size() -> None:
    """It would not say whose batch it is."""
    assert "--batch-size" not in invoke("run", "-h")


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "2>&- >&- <&-"])
def test_closed_streams_are_no_error(closed: str) -> None:
    command = f"{sys.executable} -m mgpubench --help {closed}"
    assert subprocess.run(["sh", "-c", command], capture_output=True, check=False).returncode == 0


def test_odd_characters_neither_end_the_program_nor_control_the_terminal(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "mgpubench", "compare", "b\u00e4r\n\x1b[31m"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert result.returncode == 2
    (first, *_) = result.stderr.splitlines()
    assert first.endswith(b"r??[31m: no such file or folder")
