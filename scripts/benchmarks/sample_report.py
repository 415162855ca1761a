"""Writes docs/sample-report.html from the published session, and docs/sample-report.png.

.venv/bin/python scripts/benchmarks/sample_report.py

The picture needs Chromium. Without it the old one stays.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from mgpubench.config.types import DEFAULT_MARGIN
from mgpubench.report.html.make import make_page
from mgpubench.report.html.page import render
from mgpubench.results.read import read_sessions

ROOT = Path(__file__).parents[2]
EXAMPLE = Path("results/example")
PAGE = ROOT / "docs" / "sample-report.html"
PICTURE = PAGE.with_suffix(".png")
SIZE = (1280, 960)
"""Of the picture, in pixels: the top of the page."""


def sample() -> str:
    """The page, as `mgpubench report results/example` writes it in the root of the repository."""
    os.chdir(ROOT)
    return render(make_page(read_sessions([EXAMPLE]), None, DEFAULT_MARGIN, [EXAMPLE]))


def take_picture(browser: str) -> None:
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    size = ",".join(map(str, SIZE))
    subprocess.run(
        [browser, *options, f"--window-size={size}", f"--screenshot={PICTURE}", PAGE.as_uri()],
        check=True,
        capture_output=True,
        timeout=60,
    )


if __name__ == "__main__":
    PAGE.write_text(sample(), encoding="utf-8")
    if browser := shutil.which("chromium"):
        take_picture(browser)
    else:
        print(f"{PICTURE} stays as it is: there is no chromium")
