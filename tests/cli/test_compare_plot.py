"""`mgpubench compare --plot`: what is refused, and what is written."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mgpubench.cli import cli, compare_plot

EXAMPLE = Path(__file__).parents[2] / "results" / "example"


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["compare", str(EXAMPLE), *map(str, arguments)])


@pytest.mark.parametrize("suffix", ["svg", "png", "PDF"])
def test_a_picture_is_written_beside_the_table(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out.{suffix}"
    result = invoke("--plot", path)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == f"plot: {path} (throughput, ratios, steps, runs)\n"
    assert result.stdout == invoke().stdout
    assert path.stat().st_size > 5_000
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_only_the_wanted_kinds_are_drawn(tmp_path: Path) -> None:
    kinds = ("--plot-kind", "runs", "--plot-kind", "ratios")
    result = invoke("--plot", tmp_path / "out.svg", *kinds, "--format", "json")
    assert result.stderr == f"plot: {tmp_path / 'out.svg'} (ratios, runs)\n"
    assert "Step times" not in (tmp_path / "out.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--plot", "out.jpg"), "--plot out.jpg: the name must end with .svg, .png or .pdf"),
        (("--plot", "svg"), "--plot svg: the name must end with .svg, .png or .pdf"),
        (("--plot", ""), "--plot is empty"),
        (("--plot", "no/out.svg"), "--plot no/out.svg: its folder does not exist"),
        (("--plot", "folder.svg"), "--plot folder.svg is a folder"),
        (("--plot-kind", "runs"), "--plot-kind has no meaning without --plot FILE"),
        (
            ("--plot", "out.svg", "--plot-kind", "sessions"),
            "--plot-kind sessions: nothing to draw; it needs at least two sessions of the same "
            "work",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.svg").mkdir()
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0] == f"error: {message}"
    assert result.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["folder.svg"]


def test_pictures_are_of_one_comparison_of_runs(tmp_path: Path) -> None:
    sides = ("--before", str(EXAMPLE), "--after", str(EXAMPLE))
    arguments = ["compare", *sides, "--plot", str(tmp_path / "out.svg")]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert result.stderr == "error: --plot does not go with --before and --after\n"


def test_without_matplotlib_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        compare_plot, "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    result = invoke("--plot", tmp_path / "out.svg")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: --plot needs the package matplotlib, which is not installed\n"
        "hint: pip install 'mgpubench[plot]', or pip install matplotlib\n"
    )


def test_a_file_that_cannot_be_written_is_named_after_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "x" * 248 + ".svg"  # as a file it would need a longer name while it is written
    result = invoke("--plot", name)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {name} cannot be written: File name too long\nhint: ")
    assert result.stdout == invoke().stdout
