"""docs/findings.md says what the catalogue of findings says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from mgpubench.analysis.findings.catalogue import KINDS
from mgpubench.analysis.findings.kind import FindingKind

ROOT = Path(__file__).parents[2]


def findings_page() -> ModuleType:
    """The script that writes the page. Its folder is not a package."""
    path = ROOT / "scripts" / "benchmarks" / "findings_page.py"
    spec = importlib.util.spec_from_file_location("findings_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_as_the_script_writes_it() -> None:
    on_disk = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert on_disk == findings_page().page(), (
        "run: .venv/bin/python scripts/benchmarks/findings_page.py"
    )


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.code)
def test_every_finding_has_a_meaning_and_a_remedy_that_fit_a_cell(kind: FindingKind) -> None:
    for text in (kind.meaning, kind.remedy):
        assert text.endswith((".", "?"))
        assert not {"|", "\n"} & set(text)
