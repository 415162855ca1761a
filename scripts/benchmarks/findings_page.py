"""Writes docs/findings.md from the catalogue of findings.

.venv/bin/python scripts/benchmarks/findings_page.py
"""

from __future__ import annotations

from pathlib import Path

from mgpubench.analysis.findings.catalogue import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "findings.md"
HEAD = """# Findings

A finding says what the tool noticed about a figure. It stands beside the figure, in the column
`findings` of `runs.csv` and below the tables of `compare`. It never suppresses the figure.
`not-steady`, `superlinear`, `unequal-loaders` and the findings that begin with `mixed-` are about
several runs, so only `compare` shows them.

`scripts/benchmarks/findings_page.py` writes this page from `mgpubench/analysis/findings`.

| finding | what it means | what to do |
|---|---|---|
"""


def page() -> str:
    """The text of docs/findings.md."""
    return HEAD + "".join(
        f"| `{kind.code}` | {kind.meaning} | {kind.remedy} |\n" for kind in KINDS.values()
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
