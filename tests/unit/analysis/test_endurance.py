"""Steady, drifting, throttled or failed: by hand, and by chance."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mgpubench.analysis.endurance import _running_sums, _statistic, judge_endurance
from mgpubench.report.endurance import endurance_sentences, print_endurance
from mgpubench.results.schema import RunRecord
from tests.conftest import make_run_record

NOON = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


def run(number: int, throughput: float | None, **changes: Any) -> RunRecord:
    """One run a minute, each a round of its own."""
    values: dict[str, Any] = {
        "started_at": (NOON + timedelta(minutes=number)).isoformat(),
        "round": number + 1,
        "position": number + 1,
        "status": "ok" if throughput else "failed",
    }
    record: RunRecord = make_run_record("ddp", throughput, **{**values, **changes})
    return record


def noisy(number: int, seed: int = 1) -> float:
    """About 1 % of noise."""
    return 100.0 * math.exp(random.Random(f"{seed}/{number}").gauss(0, 0.01))


def sentences(records: list[RunRecord]) -> list[str]:
    return list(endurance_sentences(judge_endurance(records)))


def test_a_steady_session() -> None:
    assert sentences([run(number, noisy(number)) for number in range(30)]) == [
        "steady: the speed of 30 runs did not change by more than 2.0 %, the last one 29 min 00 s "
        "after the first"
    ]


def test_a_change_has_its_size_its_moment_and_its_round() -> None:
    """From the 13th run on exactly 20 % slower."""
    speeds = [100.0] * 12 + [80.0] * 8
    endurance = judge_endurance([run(number, speed) for number, speed in enumerate(speeds)])
    assert endurance.state == "drifting"
    assert endurance.drift is not None
    assert endurance.drift.change == pytest.approx(-0.2)
    assert (endurance.drift.since.at_s, endurance.drift.since.record.round) == (720.0, 13)
    assert list(endurance_sentences(endurance)) == [
        "drifting: 20.0 % slower since 12 min 00 s after the start (round 13)"
    ]


def test_a_change_is_found_in_noise_and_in_any_configuration() -> None:
    """Two modes of very different speeds are one series."""
    records = []
    for number in range(40):
        factor = 1.0 if number < 25 else 1.05
        records.append(run(number, noisy(number) * factor))
        slower = noisy(number, seed=2) * factor / 3
        records.append(replace(run(number, slower), mode="dp", effective_mode="dp"))
    endurance = judge_endurance(records)
    assert endurance.drift is not None
    assert endurance.drift.change == pytest.approx(0.05, abs=0.01)
    assert endurance.drift.since.record.round == pytest.approx(26, abs=1)
    assert "faster since" in next(endurance_sentences(endurance))


def test_the_statistic_is_students_t() -> None:
    """1, 2, 3 and 5, 6, 7: a difference of 4, a variance of 1, and an error of sqrt(2/3)."""
    sums = _running_sums([1.0, 2.0, 3.0, 5.0, 6.0, 7.0])
    assert _statistic(sums, 3) == pytest.approx(4 / math.sqrt(2 / 3))


def test_noise_is_called_a_drift_in_at_most_2_of_100_sessions() -> None:
    found = 0
    for seed in range(200):
        rng = random.Random(seed)
        records = [run(number, 100 * math.exp(rng.gauss(0, 0.05))) for number in range(20)]
        found += judge_endurance(records).state == "drifting"
    assert found <= 4


def test_small_changes_are_no_drift() -> None:
    speeds = [100.0] * 20 + [98.5] * 20
    assert judge_endurance([run(i, speed) for i, speed in enumerate(speeds)]).state == "steady"


def test_too_few_runs_are_not_judged() -> None:
    assert sentences([run(number, 100.0) for number in range(9)]) == [
        "undecided: 9 runs, and at least 10 are needed to judge"
    ]
    assert sentences([]) == ["undecided: 0 runs, and at least 10 are needed to judge"]


def test_heat_is_throttling_and_a_power_limit_alone_is_not() -> None:
    hot = {6: "heat;power-limit", 9: "power-brake"}
    records = [
        run(number, 100.0, throttle_reasons=hot.get(number, "power-limit")) for number in range(12)
    ]
    assert sentences(records) == [
        "throttled: 2 of 12 runs, the first one in round 7, 6 min 00 s after the start, by its "
        "power limit and heat and a power brake"
    ]
    cool = [run(number, 100.0, throttle_reasons="power-limit") for number in range(12)]
    assert judge_endurance(cool).state == "steady"


def test_failures_come_first() -> None:
    records = [run(number, None if number == 4 else 100.0) for number in range(12)]
    assert judge_endurance(records).state == "failed"
    assert sentences(records) == [
        "failed: 1 of 12 runs, the first one in round 5, 4 min 00 s after the start"
    ]


def test_the_speed_over_time_is_a_table_of_ten_lines(capsys: pytest.CaptureFixture[str]) -> None:
    speeds = [100.0] * 20 + [80.0] * 20
    print_endurance(
        [run(i, speed, gpu_temperature_max_c=60.0 + i) for i, speed in enumerate(speeds)]
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    rows = [line for line in lines if line[-1:] == ["C"]]
    assert len(rows) == 10
    # sqrt(100 x 80) = 89.44 is the mean: 1.118 before, and 0.894 after.
    assert rows[0] == ["0", "s", "4", "1.118", "63", "C"]
    assert rows[-1] == ["36", "min", "00", "s", "4", "0.894", "99", "C"]
