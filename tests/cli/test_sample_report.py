"""docs/sample-report.html is what `mgpubench report` makes of the published session."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from mgpubench.cli import cli

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "docs" / "sample-report.html"

HOW = "run: .venv/bin/python scripts/benchmarks/sample_report.py"


def without_drawings(page: str) -> str:
    """The page with the words of its pictures in place of their lines and points.

    Another version of matplotlib draws them differently.
    """
    return re.sub(r"<svg.*?</svg>", lambda svg: words_of(svg.group()), page, flags=re.DOTALL)


def words_of(svg: str) -> str:
    return " ".join(re.findall(r"<(?:title|desc)[^>]*>.*?</(?:title|desc)>", svg, re.DOTALL))


def test_the_sample_is_as_the_command_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    pytest.importorskip("matplotlib")
    page = tmp_path / "report.html"
    result = CliRunner().invoke(cli, ["report", "results/example", "--out", str(page)])
    assert result.exit_code == 0, result.output
    made, kept = (path.read_text(encoding="utf-8") for path in (page, SAMPLE))
    assert without_drawings(made) == without_drawings(kept), HOW


def test_the_picture_of_the_sample_is_shown_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](docs/sample-report.png)" in readme
    picture = SAMPLE.with_suffix(".png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 300_000
