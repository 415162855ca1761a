"""The page in a real browser: it sorts and filters, complains about nothing, and fits a phone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.browser import PROGRAM, Browser, open_browser
from tests.conftest import make_run_record as run
from tests.unit.report.html.test_page import HOSTILE, html_of
from tests.unit.report.test_sentences import THREE_MODES

pytestmark = pytest.mark.skipif(not PROGRAM, reason="no chromium is installed")

CELLS = """
Array.from(document.querySelectorAll("#runs-table tbody tr"))
  .filter((row) => !row.hidden).map((row) => row.cells[COLUMN].textContent)
"""
CLICK = 'document.querySelectorAll("#runs-table thead button")[COLUMN].click()'
TYPE = """
(() => {
  const field = document.getElementById("runs-filter");
  field.value = TEXT;
  field.dispatchEvent(new Event("input"));
  return document.getElementById("runs-count").textContent;
})()
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests: it takes a second to start."""
    with open_browser() as found:
        yield found


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Browser:
    """The browser with a page: 15 runs that succeeded and one that failed."""
    failed = run("ddp", None, round=6, position=16, status="failed", error="killed")
    numbered = [replace(record, position=place) for place, record in enumerate(THREE_MODES, 1)]
    path = tmp_path / "report.html"
    path.write_text(html_of([*numbered, failed]), encoding="utf-8")
    browser.complaints.clear()
    browser.look(1280)
    browser.open(path)
    return browser


def cells(browser: Browser, heading: str) -> list[str]:
    return list(browser.run(CELLS.replace("COLUMN", str(column(browser, heading)))))


def column(browser: Browser, heading: str) -> int:
    script = 'Array.from(document.querySelectorAll("#runs-table th")).map((t) => t.textContent)'
    return int(browser.run(script).index(heading))


def click(browser: Browser, heading: str) -> None:
    browser.run(CLICK.replace("COLUMN", str(column(browser, heading))))


def test_a_heading_sorts_by_number_and_unknown_stays_last(page: Browser) -> None:
    click(page, "samples/s")
    ascending = cells(page, "samples/s")
    assert ascending[:2] + ascending[-2:] == ["97.00", "99.00", "198.5", "-"]
    click(page, "samples/s")
    descending = cells(page, "samples/s")
    assert descending[:2] + descending[-2:] == ["198.5", "192.0", "97.00", "-"]
    script = 'document.querySelector("[aria-sort]").getAttribute("aria-sort")'
    assert page.run(script) == "descending"
    click(page, "mode")
    assert cells(page, "mode") == ["ddp"] * 6 + ["dp"] * 5 + ["single"] * 5
    assert page.run('document.querySelectorAll("[aria-sort]").length') == 1
    assert page.complaints == []


def test_the_filter_shows_rows_with_all_words_and_counts_them(page: Browser) -> None:
    assert page.run(TYPE.replace("TEXT", '"DDP  killed"')) == "1 of 16 runs"
    assert cells(page, "run") == ["16"]
    assert page.run(TYPE.replace("TEXT", '""')) == "16 of 16 runs"
    assert page.complaints == []


def test_the_policy_stops_the_network_and_other_scripts(page: Browser) -> None:
    other = 'document.body.append(Object.assign(document.createElement("script"), {text: "x = 1"}))'
    page.run(other)
    assert page.run("typeof x") == "undefined"
    assert page.run('fetch("http://127.0.0.1:9/").then(() => "sent", () => "stopped")') == "stopped"
    assert len(page.complaints) >= 2
    assert all("Content Security Policy" in text for text in page.complaints)


@pytest.mark.parametrize("width", [390, 1280])
def test_no_width_makes_the_page_scroll_sideways(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    names = {"model": HOSTILE + "x" * 300, "options": "y" * 300, "torch_version": "z" * 200}
    bad = [replace(r, **names, findings="w" * 200, error=HOSTILE) for r in THREE_MODES]  # type: ignore[arg-type]
    path = tmp_path / "report.html"
    path.write_text(html_of(bad), encoding="utf-8")
    browser.complaints.clear()
    browser.look(width)
    browser.open(path)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.scripts.length") == 1
    assert browser.complaints == []
