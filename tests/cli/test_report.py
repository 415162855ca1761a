"""`mgpubench report`: the page is written, and nothing else is lost by it."""

from __future__ import annotations

import errno
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mgpubench.cli import cli
from tests.trainings import epochs, write_training

EXAMPLE = Path(__file__).parents[2] / "results" / "example"


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `results` in the current folder, with one session."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(EXAMPLE, "results/20260101T000000Z-abcdef")
    return Path("results")


def report(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["report", *map(str, arguments)])


def written(*arguments: object) -> str:
    """The page that a command writes to report.html."""
    result = report(*arguments)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    return Path("report.html").read_text(encoding="utf-8")


def refusal(*arguments: object, exit_code: int = 2) -> str:
    result = report(*arguments)
    assert (result.exit_code, result.stdout) == (exit_code, ""), result.output
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("error: "))
    return line.removeprefix("error: ")


def test_without_a_path_it_is_the_newest_session_as_with_compare() -> None:
    result = report()
    assert result.exit_code == 0
    assert re.fullmatch(
        "comparing results/20260101T000000Z-abcdef, the newest session; there is no other\n"
        r"written: report.html \(\d+ bytes\)\n",
        result.stderr,
    )
    assert sorted(path.name for path in Path().iterdir()) == ["report.html", "results"]


def test_the_page_says_what_compare_says() -> None:
    compared = CliRunner().invoke(cli, ["compare", "results"]).stdout
    answer = next(line for line in compared.splitlines() if line.startswith("ddp against dp"))
    page = written("results")
    assert f'<p class="sentence">{answer}</p>' in page
    assert "<span>results</span>" in page.partition('id="repeat"')[2]


def test_baseline_and_margin_are_those_of_compare() -> None:
    page = written("results", "--baseline", "dp", "--margin", "30")
    assert "ratio to<br>dp" in page
    assert "equivalent within 30 %" in page


def test_an_older_report_is_replaced() -> None:
    first = written("results")
    assert written("results", "--margin", "30") != first


@pytest.mark.parametrize("content", ["", "<!doctype html>\n<html><head>", "schema_version,run_id"])
def test_another_file_is_not_replaced(content: str) -> None:
    Path("mine.html").write_text(content)
    message = refusal("results", "--out", "mine.html")
    assert message == "mine.html is there, and is not a report of mgpubench"
    assert Path("mine.html").read_text() == content


def test_places_that_cannot_be_written_are_refused_before_anything_is_read() -> None:
    assert refusal("nothing", "--out", "results") == "results is a folder"
    assert (
        refusal("nothing", "--out", "a/report.html")
        == "a/report.html cannot be written: a is not a folder"
    )
    Path("link.html").symlink_to("nowhere")
    assert "is not a report" in refusal("nothing", "--out", "link.html")


def test_a_full_disk_leaves_the_older_report(monkeypatch: pytest.MonkeyPatch) -> None:
    first = written("results")

    def fail(source: object, target: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    assert (
        refusal("results", exit_code=1) == "report.html cannot be written: No space left on device"
    )
    assert Path("report.html").read_text(encoding="utf-8") == first
    assert not list(Path().glob(".report*"))


def test_runs_beside_trainings_are_reported_and_trainings_alone_are_refused() -> None:
    training = write_training(Path("results"), epochs(4, 2, 2))
    assert "note: left out 1 training" in report("results").stderr
    assert refusal(training) == f"{training} has trainings, and a report is about runs"


def test_results_that_cannot_be_used_are_refused_as_by_compare() -> None:
    assert refusal("nothing") == "nothing: no such file or folder"
    assert not Path("report.html").exists()


def test_open_shows_the_page_or_says_that_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    for found in (True, False):
        monkeypatch.setattr("webbrowser.open", lambda url, found=found: opened.append(url) or found)
        result = report("results", "--out", "a b.html", "--open")
        assert result.exit_code == 0
        warned = "warning: no browser was found; open 'a b.html' in one\n" in result.stderr
        assert warned is not found
    assert opened == [Path("a b.html").absolute().as_uri()] * 2
    assert opened[0].endswith("/a%20b.html")
