"""Paths on the command line as people write them: `~`, and an empty shell variable."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mgpubench.cli import COMMANDS, cli
from mgpubench.cli.paths import PathText

NO_PATHS = {"model", "modes", "gpus", "device", "output_format", "until", "env"}
"""Parameters that take text which is not a path."""


def text_parameters() -> list[tuple[str, click.Parameter]]:
    """Every parameter of every command that takes any text."""
    context = click.Context(cli)
    found = []
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        found += [
            (name, parameter)
            for parameter in command.params
            if isinstance(parameter.type, PathText)
            or type(parameter.type) in (type(click.STRING), click.Path)
        ]
    return found


def test_every_parameter_that_takes_a_path_knows_home_folders_and_empty_texts() -> None:
    paths = {
        (command, parameter.name)
        for command, parameter in text_parameters()
        if isinstance(parameter.type, PathText)
    }
    assert {("run", "out"), ("run", "data"), ("run", "resume"), ("compare", "paths")} < paths
    others = {parameter.name for _, parameter in text_parameters()} - {name for _, name in paths}
    assert {name for name in others if not is_no_path(name)} == set()


def is_no_path(name: str | None) -> bool:
    """True for the known parameters with other text: a new one must be looked at."""
    return name in {
        *NO_PATHS,
        "variants",
        "baseline",
        "margin",
        "allowed",
        "to_top1",
        "rdzv_endpoint",
        "duration_s",
        "operations",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", ""], "PATH is empty"),
        (["compare", "results", ""], "PATH is empty"),
        (["compare", "--before", "", "--after", "x"], "--before is empty"),
        (["run", "--out="], "--out is empty"),
        (["run", "--data", ""], "--data is empty"),
        (["run", "--resume="], "--resume is empty"),
        (["train", "--data", "x", "--eval-data="], "--eval-data is empty"),
        (["train", "--data", "x", "--pretrained="], "--pretrained is empty"),
        (["train", "--resume="], "--resume is empty"),
        (["evaluate", "", "--data", "x"], "CHECKPOINT is empty"),
        (["predict", "x", ""], "IMAGE is empty"),
        (["export", "x", ""], "FILE is empty"),
    ],
)
def test_an_empty_path_is_refused(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert result.stderr == f"error: {message}\nhint: Is a shell variable unset?\n"


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["run", "--smoke", "--dry-run", "--data=~/photos"])
    assert f"error: --data {tmp_path}/photos does not exist" in result.stderr
    result = CliRunner().invoke(cli, ["compare", "~/results"])
    assert f"error: {tmp_path}/results: no such file or folder" in result.stderr
    (tmp_path / "file").touch()
    result = CliRunner().invoke(cli, ["run", "--smoke", "--out=~/file"])
    assert f"error: results cannot be written to {tmp_path}/file" in result.stderr


def test_pretrained_alone_names_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["train", "--data", "photos", "--pretrained"])
    assert "error: --data photos does not exist" in result.stderr
