"""Comparisons for pictures, made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mgpubench.analysis.compare import compare
from mgpubench.report.plots.measured import Measured
from mgpubench.results.schema import RunRecord
from tests.conftest import make_run_record

SPREAD = (1.0, 1.01, 0.99, 1.0, 1.02, 0.98)
"""Throughput of six rounds, as shares of their mean."""

SESSION = "20261130T042924Z-000001"


def session(
    rates: dict[tuple[str, int], float], session_id: str = SESSION, **changes: Any
) -> list[RunRecord]:
    """Six rounds of each mode on a number of devices. Their throughput is round a mean."""
    found = []
    for number, share in enumerate(SPREAD, 1):
        for place, ((mode, devices), rate) in enumerate(rates.items(), 1):
            position = (number - 1) * len(rates) + place
            # So that the ratio of two rows differs from round to round.
            shift = 1 + 0.01 * ((number * place) % 3 - 1)
            found.append(
                make_run_record(
                    mode,
                    rate * share * shift,
                    num_devices=devices,
                    session_id=session_id,
                    run_id=f"{session_id}-{position:03d}",
                    round=number,
                    position=position,
                    **changes,
                )
            )
    return found


def measured(records: list[RunRecord], folders: dict[str, Path] | None = None) -> Measured:
    """The comparison of some runs."""
    return Measured(compare(records, None, 0.02), records, folders or {})


EIGHT = {("single", 1): 100.0, ("dp", 2): 160.0, ("dp", 8): 400.0, ("ddp", 8): 760.0}
TWO = {("single", 1): 100.0, ("dp", 2): 110.0}
