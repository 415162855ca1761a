"""When rounds are added, and when no more are: canned figures take the place of real runs."""

from __future__ import annotations

import math
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import mgpubench.session.rounds as rounds_module
from mgpubench.analysis import stats
from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import Plan, make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import RunConfig
from mgpubench.errors import Interrupted
from mgpubench.launch.signals import STOPPING_SIGNALS, StopSignal
from mgpubench.results.read import read_runs
from mgpubench.results.schema import RunRecord, run_id
from mgpubench.results.session_folder import Session, open_session
from mgpubench.session.recorder import Sitting
from mgpubench.session.rounds import (
    Lasting,
    Maker,
    Target,
    session_records,
    undecided_comparisons,
)
from tests.conftest import make_run_record

Rate = Callable[[RunConfig], float | None]
SEQUENTIAL = Sitting(planned_rounds=1, is_sequential=True)


# Which comparisons are undecided.


def runs_of(
    rounds: int, ratios: dict[str, float], spread: float = 0.001, **changes: Any
) -> list[RunRecord]:
    """Rounds of some modes, whose throughputs have these ratios to 100 samples/s."""
    rng = random.Random(1)
    return [
        make_run_record(mode, 100 * ratio * math.exp(rng.gauss(0, spread)), round=number, **changes)
        for number in range(1, rounds + 1)
        for mode, ratio in ratios.items()
    ]


def undecided(records: Sequence[RunRecord], width: float | None = None) -> list[tuple[str, str]]:
    return [(row.mode, versus.baseline) for row, versus in undecided_comparisons(records, width)]


def test_too_few_rounds_decide_nothing() -> None:
    ratios = {"single": 1.0, "dp": 1.5, "ddp": 1.9}
    everything = [("dp", "single"), ("ddp", "single"), ("ddp", "dp")]
    assert undecided(runs_of(4, ratios)) == everything
    assert undecided(runs_of(4, ratios), width=0.5) == everything
    assert undecided(runs_of(5, ratios)) == []


def test_only_what_is_undecided_is_named() -> None:
    records = [
        *runs_of(6, {"single": 1.0, "ddp": 1.9}),
        *runs_of(6, {"dp": 1.0}, spread=0.1),
    ]
    assert undecided(records) == [("dp", "single")]


def test_with_dp_as_baseline_ddp_is_one_comparison() -> None:
    assert undecided(runs_of(6, {"dp": 1.0, "ddp": 1.0}, spread=0.1)) == [("ddp", "dp")]


def test_rounds_that_were_added_must_satisfy_a_confidence_sequence() -> None:
    """Two rows need six rounds then, and one row needs five."""
    ratios = {"single": 1.0, "dp": 1.5, "ddp": 1.9}
    assert undecided(runs_of(5, ratios, rounds_added=0)) == [("dp", "single"), ("ddp", "single")]
    assert undecided(runs_of(6, ratios, rounds_added=0)) == []
    assert undecided(runs_of(5, {"dp": 1.0, "ddp": 1.5}, rounds_added=0)) == []
    assert undecided(runs_of(4, {"dp": 1.0, "ddp": 1.5}, rounds_added=0)) == [("ddp", "dp")]


def test_variants_are_compared_with_the_first_one() -> None:
    records = [
        *runs_of(6, {"ddp": 1.0}, variant="default", variant_number=1),
        *runs_of(6, {"ddp": 1.0}, variant="other", variant_number=2, spread=0.1),
    ]
    assert undecided(records) == [("ddp", "default")]


def test_what_is_not_judged_never_keeps_a_session_going() -> None:
    shared = runs_of(3, {"ddp": 1.0}, effective_mode="oversubscribed", num_devices=2)
    assert undecided([*runs_of(3, {"single": 1.0}), *shared]) == []
    assert undecided(runs_of(3, {"ddp": 1.0})) == []


def test_sides_without_a_round_in_common_do_not_keep_it_going_either() -> None:
    later = [make_run_record("ddp", 150.0, round=number, sitting=2) for number in range(1, 4)]
    assert undecided([*runs_of(3, {"dp": 1.0}, sitting=1), *later]) == []


@pytest.mark.parametrize("sequential", [{}, {"rounds_added": 0}])
def test_the_width_is_half_of_the_interval_of_the_ratio(sequential: dict[str, int]) -> None:
    records = runs_of(12, {"dp": 1.0, "ddp": 1.3}, spread=0.01, **sequential)
    logs = [
        math.log(ddp.throughput_samples_per_s / dp.throughput_samples_per_s)
        for dp, ddp in zip(records[::2], records[1::2], strict=True)
    ]
    half_width = stats.sequence_half_width if sequential else stats.t_half_width
    reached = math.expm1(half_width(math.sqrt(stats.variance(logs)), 12, 0.05))
    assert 0.005 < reached < 0.1
    assert undecided(records, width=reached * 1.001) == []
    assert undecided(records, width=reached * 0.999) == [("ddp", "dp")]


# Making rounds.


@dataclass
class Canned:
    """A recorder whose runs take no time, and have the throughputs of a function."""

    session: Session
    sitting: Sitting
    rate: Rate
    made: list[RunConfig] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.session.folder

    def run(self, supervisor: object, config: RunConfig) -> RunRecord:
        self.made.append(config)
        rate = self.rate(config)
        record: RunRecord = make_run_record(
            config.mode,
            rate,
            status="ok" if rate else "failed",
            round=config.round,
            position=config.position,
            run_id=run_id(self.session.id, config.position, self.sitting.number),
            session_id=self.session.id,
            sitting=self.sitting.number,
            rounds_added=self.sitting.rounds_added(config.round),
        )
        self.session.append(record, ())
        return record


@dataclass
class Screen:
    """A display that remembers."""

    notices: list[str] = field(default_factory=list)
    added: list[int] = field(default_factory=list)

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def add_runs(self, runs: Sequence[RunConfig]) -> None:
        self.added.append(len(runs))

    def judge_endurance(self, records: Sequence[RunRecord]) -> None:
        self.notices.append(f"judged {len(records)}")


@dataclass
class Scene:
    """A plan of dp and ddp, and what makes its runs."""

    plan: Plan
    recorder: Canned
    screen: Screen
    maker: Maker

    def make(self, target: Target | Lasting | None) -> list[RunRecord]:
        self.maker.make_all(self.plan, self.plan.runs, target)
        return read_runs(self.recorder.folder / "runs.csv").records


Stage = Callable[..., Scene]


@pytest.fixture
def stage(tmp_path: Path, machine: Callable[..., Machine]) -> Iterator[Stage]:
    """Makes scenes: sessions with one planned round, unless more are wanted."""
    handlers = {signum: signal.getsignal(signum) for signum in STOPPING_SIGNALS}
    with StopSignal().installed() as stop:

        def make(
            rate: Rate,
            sitting: Sitting = SEQUENTIAL,
            rounds: int = 1,
            cool_down_s: float = 0.0,
            fail_fast: bool = False,
        ) -> Scene:
            request = Request(gpus=(2,), modes=("dp", "ddp"), rounds=rounds, seed=3)
            plan = make_plan(request, machine(2))
            session = open_session(tmp_path, {}, datetime.now(UTC))
            recorder, screen = Canned(session, sitting, rate), Screen()
            maker: Any = Maker(
                launchers={(): None},  # type: ignore[dict-item]
                recorder=recorder,  # type: ignore[arg-type]
                display=screen,  # type: ignore[arg-type]
                stop=stop,
                cool_down_s=cool_down_s,
                fail_fast=fail_fast,
            )
            return Scene(plan, recorder, screen, maker)

        yield make
    # After a signal they are ignored, since a program is then about to end.
    for signum, handler in handlers.items():
        signal.signal(signum, handler)


def clear(config: RunConfig) -> float:
    """Ddp is surely faster."""
    return (160.0 if config.mode == "ddp" else 100.0) * (1 + 0.001 * (config.position % 3))


def noisy(config: RunConfig) -> float:
    """Nothing will ever be sure."""
    return random.Random(config.position).uniform(50, 150)


DECIDED = Target(width=None, max_rounds=50)


def test_a_fixed_session_has_the_rounds_that_were_asked_for(stage: Stage) -> None:
    scene = stage(noisy, Sitting(planned_rounds=3), rounds=3)
    records = scene.make(None)
    assert [record.position for record in records] == [1, 2, 3, 4, 5, 6]
    assert {record.rounds_added for record in records} == {None}
    assert (scene.screen.added, scene.screen.notices) == ([6], [])


def test_rounds_are_added_until_all_is_decided(stage: Stage) -> None:
    scene = stage(clear)
    records = scene.make(DECIDED)
    assert [record.round for record in records] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [record.rounds_added for record in records] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert scene.screen.added == [2] * 5
    assert scene.screen.notices == [
        *(
            f"after {count} ddp x2 against dp is undecided (no interval yet): one more round (at "
            "most 50)"
            for count in ("1 round", "2 rounds", "3 rounds", "4 rounds")
        ),
        "no round to add after 5: all is decided",
    ]


def test_every_added_round_has_each_configuration_once(stage: Stage) -> None:
    scene = stage(noisy)
    records = scene.make(Target(width=None, max_rounds=9))
    assert len({record.run_id for record in records}) == 18
    for number in range(1, 10):
        assert {r.mode for r in records if r.round == number} == {"dp", "ddp"}
    orders = {tuple(r.mode for r in records if r.round == number) for number in range(1, 10)}
    assert len(orders) == 2


def test_no_round_is_added_beyond_the_limit(stage: Stage) -> None:
    scene = stage(noisy)
    records = scene.make(Target(width=None, max_rounds=7))
    assert max(record.round or 0 for record in records) == 7
    *_, added, last = scene.screen.notices
    undecided = r"ddp x2 against dp is undecided \(0\.\d+\.\.\d+\.\d+\)"
    assert re.fullmatch(rf"after 6 rounds {undecided}: one more round \(at most 7\)", added)
    assert re.fullmatch(rf"no round to add after 7 \(--max-rounds 7\): {undecided}", last)


def test_planned_rounds_come_first_and_count_as_none_added(stage: Stage) -> None:
    scene = stage(clear, Sitting(planned_rounds=4, is_sequential=True), rounds=4)
    records = scene.make(DECIDED)
    assert [r.rounds_added for r in records if r.mode == "dp"] == [0, 0, 0, 0, 1]
    assert scene.screen.added == [8, 2]


def test_a_session_with_more_rounds_than_it_needs_adds_none(stage: Stage) -> None:
    scene = stage(clear, Sitting(planned_rounds=8, is_sequential=True), rounds=8)
    assert len(scene.make(DECIDED)) == 16
    assert scene.screen.notices == ["no round to add after 8: all is decided"]


def test_rounds_are_added_until_the_interval_is_narrow(stage: Stage) -> None:
    scene = stage(clear)
    records = scene.make(Target(width=0.5, max_rounds=50))
    assert max(record.round or 0 for record in records) == 5
    assert scene.screen.notices[-1] == "no round to add after 5: every interval is within 50 %"


def test_a_narrow_interval_takes_more_rounds_than_a_verdict(stage: Stage) -> None:
    scene = stage(lambda config: clear(config) * random.Random(config.position).uniform(0.95, 1.05))
    records = scene.make(Target(width=0.05, max_rounds=50))
    rounds = max(record.round or 0 for record in records)
    assert 6 < rounds < 50
    assert "is wider than 5 % (" in scene.screen.notices[-2]
    before = [record for record in records if (record.round or 0) < rounds]
    assert undecided_comparisons(before, 0.05)
    assert not undecided_comparisons(before, None)


@pytest.mark.parametrize(
    "rate", [lambda config: None, lambda config: 9.0 if config.mode == "dp" else None]
)
def test_without_anything_to_compare_no_round_is_added(stage: Stage, rate: Rate) -> None:
    scene = stage(rate)
    assert len(scene.make(DECIDED)) == 2
    assert scene.screen.notices == ["no round to add after 1: there is nothing to compare"]


def test_rounds_are_made_until_a_time_is_up_and_the_last_one_is_finished(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run takes 10 s: after 35 s the second round has begun, and no third one does."""
    clock = [0.0]

    def rate(config: RunConfig) -> float:
        clock[0] += 10.0
        return clear(config)

    monkeypatch.setattr(rounds_module.time, "monotonic", lambda: clock[0])
    scene = stage(rate, Sitting(planned_rounds=100_000))
    records = scene.make(Lasting(duration_s=35.0))
    assert [record.position for record in records] == [1, 2, 3, 4]
    assert {record.rounds_added for record in records} == {None}
    assert scene.screen.added == [2, 2]
    assert scene.screen.notices == ["rounds until 35 s are over; the last one is finished"]


def test_rounds_that_were_to_last_are_judged_after_ctrl_c(stage: Stage) -> None:
    def rate(config: RunConfig) -> float:
        if config.position == 5:
            os.kill(os.getpid(), signal.SIGINT)
            scene.maker.stop.check()
        return clear(config)

    scene = stage(rate)
    with pytest.raises(Interrupted):
        scene.make(Lasting(duration_s=3600.0))
    assert scene.screen.notices[1] == "judged 4"
    assert scene.screen.notices[2].startswith("4 finished runs kept in ")


def test_fail_fast_ends_rounds_that_would_last(stage: Stage) -> None:
    scene = stage(lambda config: None if config.round == 2 else 1.0, fail_fast=True)
    records = scene.make(Lasting(duration_s=3600.0))
    assert [record.status for record in records] == ["ok", "ok", "failed"]


def test_fail_fast_adds_no_round(stage: Stage) -> None:
    scene = stage(lambda config: None, fail_fast=True)
    assert len(scene.make(DECIDED)) == 1
    (note,) = scene.screen.notices
    assert note.startswith(
        "--fail-fast: 1 run left out; make the rest with: mgpubench run --resume"
    )


def test_a_signal_keeps_what_was_made_and_names_the_command(stage: Stage) -> None:
    def rate(config: RunConfig) -> float:
        if config.position == 3:
            signal.raise_signal(signal.SIGINT)
            raise Interrupted(signal.SIGINT)  # as the supervisor does
        return clear(config)

    scene = stage(rate)
    with pytest.raises(Interrupted):
        scene.make(DECIDED)
    assert scene.screen.notices[-1] == (
        f"2 finished runs kept in {scene.recorder.folder}; make the rest with: mgpubench run "
        f"--resume {scene.recorder.folder}"
    )


def test_a_session_that_was_removed_has_no_rows(stage: Stage, tmp_path: Path) -> None:
    assert session_records(tmp_path / "nowhere") == []
    (tmp_path / "runs.csv").touch()
    assert session_records(tmp_path) == []


# Pauses.


def test_there_is_a_pause_between_runs_and_none_before_the_first(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[tuple[int, float]] = []
    scene = stage(noisy, Sitting(planned_rounds=2), rounds=2, cool_down_s=30.0)
    monkeypatch.setattr(
        rounds_module.time,
        "sleep",
        lambda seconds: pauses.append((len(scene.recorder.made), seconds)),
    )
    scene.make(None)
    assert pauses == [(1, 30.0), (2, 30.0), (3, 30.0)]


def test_without_a_pause_nothing_sleeps(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module.time, "sleep", pytest.fail)
    assert len(stage(noisy, Sitting(planned_rounds=2), rounds=2).make(None)) == 4


def test_ctrl_c_ends_a_pause_at_once(stage: Stage) -> None:
    scene = stage(noisy, Sitting(planned_rounds=2), rounds=2, cool_down_s=60.0)
    began_s = time.monotonic()
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(Interrupted):
        scene.make(None)
    timer.join()
    assert time.monotonic() - began_s < 10
    assert [record.position for record in session_records(scene.recorder.folder)] == [1]
    assert "1 finished run kept in" in scene.screen.notices[-1]
