"""The step times of runs, from steps.csv."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame

STEPS_FILE = "steps.csv"
_COLUMNS = ["run_id", "rank", "phase", "step_time_s"]


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Measured steps by run, in seconds."""

    by_run: dict[str, list[float]]
    """Of the rank that gives the window, ascending."""
    unreadable: int
    """Files that are there and cannot be read."""

    def of(self, run_ids: Iterable[str]) -> list[float]:
        """The step times of some runs together."""
        return [seconds for run_id in run_ids for seconds in self.by_run.get(run_id, ())]


def read_step_times(folders: Sequence[Path]) -> StepTimes:
    """The step times of all runs of some sessions. A session without the file has none."""
    by_run: dict[str, list[float]] = {}
    unreadable = 0
    for folder in folders:
        path = folder / STEPS_FILE
        if not path.exists():
            continue
        try:
            by_run.update(_of_slowest_rank(_read(path)))
        except (OSError, ValueError):  # the second is what pandas raises about its content
            unreadable += 1
    return StepTimes(by_run, unreadable)


def _read(path: Path) -> DataFrame:
    """The measured steps. A line that was cut off is left out."""
    import pandas as pd

    steps = pd.read_csv(
        path,
        usecols=_COLUMNS,
        dtype={"run_id": "string", "phase": "string"},
        on_bad_lines="skip",
        encoding_errors="replace",
    )
    for name in ("rank", "step_time_s"):
        steps[name] = pd.to_numeric(steps[name], errors="coerce")
    return steps[(steps["phase"] == "measured") & (steps["step_time_s"] > 0)].dropna()


def _of_slowest_rank(steps: DataFrame) -> dict[str, list[float]]:
    """As in runs.csv, the steps of a run are those of the rank that took longest for them all."""
    totals = steps.groupby(["run_id", "rank"])["step_time_s"].sum().reset_index()
    slowest = totals.loc[totals.groupby("run_id")["step_time_s"].idxmax(), ["run_id", "rank"]]
    chosen = steps.merge(slowest, on=["run_id", "rank"]).sort_values("step_time_s")
    return {str(run): list(each) for run, each in chosen.groupby("run_id")["step_time_s"]}
