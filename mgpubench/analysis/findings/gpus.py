"""Findings about what the GPUs did during the window, from telemetry."""

from __future__ import annotations

from collections.abc import Iterator

from mgpubench.analysis.findings.kind import FindingKind, MeasuredRun
from mgpubench.results.clock_reasons import THROTTLING


def _was_throttled(run: MeasuredRun) -> Iterator[str]:
    reasons = [reason for reason in run.figures.throttle_reasons.split(";") if reason]
    if reasons:
        words = " and ".join(THROTTLING.get(reason, reason) for reason in reasons)
        yield (
            f"a GPU was slowed down in the window by {words}: the figure is that of this cooling "
            "and these limits; telemetry.csv shows which GPU, and when"
        )


KINDS = (
    FindingKind(
        code="throttled",
        meaning=(
            "During the window the driver held the clocks of a GPU down (`throttle_reasons`): by "
            "heat, by its power limit, or by a power brake."
        ),
        remedy=(
            "Heat or a power brake: look at fans, airflow and power supply. Many GPUs reach their "
            "power limit in every training: then compare only runs with the same limit."
        ),
        check=_was_throttled,
    ),
)
