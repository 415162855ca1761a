"""Making the runs of a session round by round, and adding rounds until they decide."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpubench.analysis.compare import compare
from mgpubench.analysis.row import Row, Versus
from mgpubench.config.plan import Plan
from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import DEFAULT_MARGIN
from mgpubench.errors import BenchError
from mgpubench.format import format_count, format_duration, format_interval, shell_path
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Launcher
from mgpubench.results.merge import best_sittings, merge
from mgpubench.results.read import read_runs
from mgpubench.results.schema import RunRecord
from mgpubench.results.session_folder import RUNS_CSV
from mgpubench.session.recorder import Display, Recorder
from mgpubench.session.supervisors import Environment

Compared = tuple[Row, Versus]


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """When no more rounds are added."""

    width: float | None
    """The relative half-width at which an interval is narrow enough; None: until it decides."""
    max_rounds: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Lasting:
    """Rounds are added until a time is up."""

    duration_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Maker:
    """What makes the runs of a session, and how."""

    launchers: Mapping[Environment, Launcher]
    """By the environment variables that a variant sets."""
    recorder: Recorder
    display: Display
    stop: StopSignal
    cool_down_s: float = 0.0
    fail_fast: bool = False

    def make_all(
        self, plan: Plan, runs: Sequence[RunConfig], target: Target | Lasting | None
    ) -> None:
        """Make some runs of a plan, and then add rounds to it until they reach the target.

        Raises:
            BenchError: Interrupted after a signal, or if a row cannot be written.
        """
        until_s = time.monotonic() + (target.duration_s if isinstance(target, Lasting) else 0.0)
        self.display.add_runs(runs)
        try:
            went_on = self._make(runs)
            if isinstance(target, Lasting) and went_on:
                self.display.notice(
                    f"rounds until {format_duration(target.duration_s)} are over; the last one is "
                    "finished"
                )
                self._make_rounds_until(until_s, plan)
            while isinstance(target, Target) and went_on:
                records = self._records()
                undecided = undecided_comparisons(records, target.width)
                if not undecided or plan.rounds >= target.max_rounds:
                    self.display.notice(_why_no_more(plan.rounds, records, undecided, target))
                    break
                self.display.notice(
                    f"after {format_count(plan.rounds, 'round')} {_which(undecided, target)}: one "
                    f"more round (at most {target.max_rounds})"
                )
                plan = plan.with_rounds(plan.rounds + 1)
                added = plan.runs[-plan.num_configurations :]
                self.display.add_runs(added)
                went_on = self._make(added)
            self.stop.check()
        except BenchError:
            self._tell_what_is_kept(plan, target)
            raise

    def _tell_what_is_kept(self, plan: Plan, target: Target | Lasting | None) -> None:
        records = self._records()
        if isinstance(target, Lasting):
            self.display.judge_endurance(records)
        finished = sum(record.is_ok for record in records)
        self.display.notice(
            f"{format_count(finished, 'finished run')} kept in {self.recorder.folder}"
            f"{self._resume_hint(plan)}"
        )

    def _make_rounds_until(self, until_s: float, plan: Plan) -> None:
        """Make rounds after those of the plan. The last one is finished when the time is up."""
        rounds = plan.rounds_after(plan.rounds)
        while time.monotonic() < until_s:
            # Only this round is kept in memory: there may be thousands.
            runs = next(rounds)
            self.display.add_runs(runs)
            if not self._make(runs):
                return

    def _make(self, runs: Sequence[RunConfig]) -> bool:
        """Make runs in their order. False if --fail-fast ended them early."""
        for number, config in enumerate(runs, start=1):
            self._cool_down(config)
            record = self.recorder.run(self.launchers[config.env], config)
            if self.fail_fast and not record.is_ok and number < len(runs):
                left = format_count(len(runs) - number, "run")
                command = f"mgpubench run --resume {shell_path(self.recorder.folder)}"
                self.display.notice(f"--fail-fast: {left} left out; make the rest with: {command}")
                return False
        return True

    def _cool_down(self, config: RunConfig) -> None:
        if self.cool_down_s and config.position > 1:
            with self.stop.raising():
                time.sleep(self.cool_down_s)

    def _records(self) -> list[RunRecord]:
        return session_records(self.recorder.folder)

    def _resume_hint(self, plan: Plan) -> str:
        """The command that makes the rest of a session; empty if nothing is left."""
        done = {record.position for record in self._records() if record.is_ok}
        if all(run.position in done for run in plan.runs):
            return ""
        return f"; make the rest with: mgpubench run --resume {shell_path(self.recorder.folder)}"


def session_records(folder: Path) -> list[RunRecord]:
    """All rows of a session that count; none if it was removed, or has no row yet."""
    path = folder / RUNS_CSV
    if not path.exists() or not path.stat().st_size:
        return []
    return merge({path: read_runs(path)}).records


def undecided_comparisons(records: Sequence[RunRecord], width: float | None) -> list[Compared]:
    """The comparisons of a session that more rounds could decide or make narrow enough."""
    return [
        (row, versus) for row, versus in _comparisons(records) if not _is_reached(versus, width)
    ]


def _comparisons(records: Sequence[RunRecord]) -> list[Compared]:
    return [
        (row, versus)
        for row in compare(best_sittings(records), None, DEFAULT_MARGIN)
        for versus in dict.fromkeys((row.versus_baseline, row.versus_dp))
        if versus and versus.comparison and versus.comparison.paired and versus.is_judged
    ]


def _is_reached(versus: Versus, width: float | None) -> bool:
    if width is None:
        return versus.verdict != "undecided"
    if versus.interval is None:
        return False
    low, high = versus.interval
    return (math.log(high) - math.log(low)) / 2 <= math.log1p(width)


def _why_no_more(
    rounds: int, records: Sequence[RunRecord], undecided: Sequence[Compared], target: Target
) -> str:
    made = f"no round to add after {rounds}"
    if undecided:
        return f"{made} (--max-rounds {target.max_rounds}): {_which(undecided, target)}"
    if not _comparisons(records):
        return f"{made}: there is nothing to compare"
    if target.width is None:
        return f"{made}: all is decided"
    return f"{made}: every interval is within {target.width * 100:g} %"


def _which(undecided: Sequence[Compared], target: Target) -> str:
    row, versus = undecided[0]
    more = f" and {len(undecided) - 1} more" if len(undecided) > 1 else ""
    interval = format_interval(versus.interval) if versus.interval else "no interval yet"
    goal = "undecided" if target.width is None else f"wider than {target.width * 100:g} %"
    variant = f" ({row.variant})" if row.variant else ""
    label = f"{row.mode} x{row.num_devices}{variant}"
    return f"{label} against {versus.baseline} is {goal} ({interval}){more}"
