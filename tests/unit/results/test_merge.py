"""Of everything that was tried, the runs that count."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from mgpubench.analysis.compare import compare
from mgpubench.results.merge import Reading, best_sittings, merge
from mgpubench.results.read import read_sessions
from mgpubench.results.schema import RunRecord, run_id
from tests.conftest import make_run_record
from tests.runs_csv import write_session

MODES = ("single", "dp", "ddp")


def run(place: int, round_: int, sitting: int | None, status: str = "ok", **changes: Any) -> Any:
    """The run of a mode in a round: three modes a round."""
    position = 3 * (round_ - 1) + place + 1
    return make_run_record(
        MODES[place],
        100.0 * (place + 1) + 10 * (sitting or 1) if status == "ok" else None,
        status=status,
        round=round_,
        position=position,
        sitting=sitting,
        run_id=run_id("s1", position, sitting or 1),
        **changes,
    )


def made(records: list[RunRecord]) -> list[tuple[str, int | None, int | None, str]]:
    """Mode, round, sitting and status of what counts, in the order of the file."""
    return [(r.mode, r.round, r.sitting, r.status) for r in best_sittings(records)]


def attempts(*outcomes: str, sitting: int, round_: int = 1) -> list[RunRecord]:
    """The runs of a round in one sitting: `ok`, `failed`, `interrupted` or `-` for not made."""
    return [
        run(place, round_, sitting, outcome)
        for place, outcome in enumerate(outcomes)
        if outcome != "-"
    ]


def test_a_complete_round_counts_as_it_is() -> None:
    records = attempts("ok", "ok", "ok", sitting=1)
    assert best_sittings(records) == records


def test_of_a_repeated_round_the_sitting_with_most_ok_runs_counts() -> None:
    """A resume that was broken off must not erase a good round."""
    first = attempts("ok", "ok", "ok", sitting=1)
    broken_off = attempts("ok", "interrupted", "-", sitting=2)
    assert best_sittings([*first, *broken_off]) == first
    second = attempts("ok", "ok", "ok", sitting=2)
    assert best_sittings([*attempts("ok", "-", "-", sitting=1), *second]) == second


def test_on_a_tie_the_later_sitting_counts() -> None:
    first, second = (attempts("ok", "ok", "ok", sitting=number) for number in (1, 2))
    assert best_sittings([*first, *second]) == second
    assert best_sittings([*second, *first]) == second


def test_a_run_that_is_ok_only_in_another_sitting_is_used_from_there() -> None:
    """Its figure is right. It has no pair, since the others are from another time."""
    records = [*attempts("-", "ok", "ok", sitting=1), *attempts("ok", "failed", "-", sitting=2)]
    assert made(records) == [
        ("dp", 1, 1, "ok"),
        ("ddp", 1, 1, "ok"),
        ("single", 1, 2, "ok"),
        ("dp", 1, 2, "failed"),
    ]
    rows = {row.mode: row for row in compare(best_sittings(records), None, 0.02)}
    pairs = {
        mode: rows[mode].versus_baseline.comparison.pairs  # type: ignore[union-attr]
        for mode in ("dp", "ddp")
    }
    assert pairs == {"dp": 0, "ddp": 0}
    assert rows["ddp"].versus_dp.comparison.pairs == 1  # type: ignore[union-attr]


def test_of_several_other_sittings_the_latest_is_used() -> None:
    records = [
        *attempts("ok", "-", "-", sitting=1),
        *attempts("ok", "-", "-", sitting=2),
        *attempts("-", "ok", "ok", sitting=3),
    ]
    assert made(records) == [("single", 1, 2, "ok"), ("dp", 1, 3, "ok"), ("ddp", 1, 3, "ok")]


def test_failed_attempts_stay_beside_the_runs_that_succeeded() -> None:
    """A side that fails when the machine is slow reads too fast, whatever the pairing."""
    records = [*attempts("ok", "ok", "failed", sitting=1), *attempts("ok", "ok", "ok", sitting=2)]
    assert made(records) == [
        ("ddp", 1, 1, "failed"),
        *((mode, 1, 2, "ok") for mode in MODES),
    ]
    [ddp] = [row for row in compare(best_sittings(records), None, 0.02) if row.mode == "ddp"]
    assert (ddp.runs, ddp.failed) == (1, 1)


def test_an_interrupted_attempt_leaves_if_its_run_succeeded() -> None:
    records = [
        *attempts("ok", "interrupted", "-", sitting=1),
        *attempts("ok", "ok", "interrupted", sitting=2),
    ]
    assert made(records) == [
        ("single", 1, 2, "ok"),
        ("dp", 1, 2, "ok"),
        ("ddp", 1, 2, "interrupted"),
    ]


def test_a_run_that_never_succeeded_keeps_all_its_attempts() -> None:
    records = [
        *attempts("ok", "ok", "failed", sitting=1),
        *attempts("ok", "ok", "failed", sitting=2),
    ]
    assert [status for mode, *_, status in made(records) if mode == "ddp"] == ["failed", "failed"]


def test_each_round_has_its_own_best_sitting() -> None:
    records = [
        *attempts("ok", "ok", "ok", sitting=1, round_=1),
        *attempts("ok", "failed", "ok", sitting=1, round_=2),
        *attempts("ok", "ok", "ok", sitting=2, round_=2),
    ]
    counting = {(r.round, r.sitting) for r in best_sittings(records) if r.is_ok}
    assert counting == {(1, 1), (2, 2)}


def test_an_unknown_sitting_is_the_first_one() -> None:
    old = [run(place, 1, None) for place in range(2)]
    again = attempts("ok", "ok", "ok", sitting=2)
    assert best_sittings([*old, *again]) == again
    assert best_sittings(old) == old


def test_equal_positions_of_two_sessions_are_two_runs() -> None:
    first = attempts("ok", "ok", "ok", sitting=1)
    other = [run(place, 1, 2, session_id="s2") for place in range(3)]
    assert best_sittings([*first, *other]) == [*first, *other]


@pytest.mark.parametrize("unknown", [{"session_id": ""}, {"position": None}], ids=str)
def test_runs_without_a_place_are_all_kept(unknown: dict[str, Any]) -> None:
    records = [make_run_record("dp", 100.0, **{"position": 1, **unknown}) for _ in range(3)]
    assert best_sittings(records) == records


def test_what_counts_does_not_depend_on_the_order_of_the_rows() -> None:
    records = [
        *attempts("ok", "failed", "ok", sitting=1),
        *attempts("ok", "ok", "interrupted", sitting=2),
        *attempts("ok", "ok", "ok", sitting=3, round_=2),
        *attempts("ok", "-", "-", sitting=1, round_=2),
    ]
    expected = set(best_sittings(records))
    for seed in range(10):
        assert set(best_sittings(random.Random(seed).sample(records, len(records)))) == expected


def test_reading_leaves_out_sittings_that_do_not_count_without_a_warning(tmp_path: Path) -> None:
    """They stay in the file, and are no fault of it."""
    first, second = (attempts("ok", "ok", "ok", sitting=number) for number in (1, 2))
    reading = merge({tmp_path / "s1" / "runs.csv": Reading([*first, *second], [])})
    assert reading.records == second
    assert reading.warnings == []


def test_a_reading_knows_the_folder_of_each_session(tmp_path: Path) -> None:
    folders = {
        name: write_session(tmp_path, name, [make_run_record("dp"), make_run_record("ddp")])
        for name in ("s1", "s2")
    }
    assert read_sessions([tmp_path]).folders == folders


def test_the_folder_of_a_copied_session_is_the_one_that_was_read(tmp_path: Path) -> None:
    folder = write_session(tmp_path, "s1", [make_run_record("dp")])
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "runs.csv").write_bytes((folder / "runs.csv").read_bytes())
    reading = read_sessions([folder, copy])
    assert reading.folders == {"s1": folder}
    assert read_sessions([copy]).folders == {"s1": copy}


def test_sessions_whose_runs_have_no_id_have_their_own_folders() -> None:
    readings = {
        Path(name) / "runs.csv": Reading([make_run_record("dp", session_id=name)], [])
        for name in ("s1", "s2")
    }
    assert merge(readings).folders == {"s1": Path("s1"), "s2": Path("s2")}
