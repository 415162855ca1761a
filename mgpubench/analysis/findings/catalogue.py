"""All kinds of findings, and the findings about a run."""

from __future__ import annotations

from mgpubench.analysis.findings import data, gpus, mixed, steadiness, timing, work
from mgpubench.analysis.findings.kind import Finding, FindingKind, MeasuredRun

KINDS: dict[str, FindingKind] = {
    kind.code: kind
    for kind in (
        *work.KINDS,
        *timing.KINDS,
        *gpus.KINDS,
        *steadiness.KINDS,
        *data.KINDS,
        *mixed.KINDS,
    )
}
"""Every kind of finding by its code, in the order in which findings are listed."""


def findings_of(run: MeasuredRun) -> tuple[Finding, ...]:
    """All findings about a finished run."""
    return tuple(
        Finding(kind.code, message) for kind in KINDS.values() for message in kind.check(run)
    )


def has_table_note(code: str) -> bool:
    """True if a table says something about the code once, instead of in each row."""
    kind = KINDS.get(code)
    return kind is not None and bool(kind.table_note)
