"""Which sessions answer if none is named: the newest, and those with the modes that it lacks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mgpubench.analysis.compare import compare
from mgpubench.analysis.selection import select_sessions
from mgpubench.config.types import MODES
from mgpubench.errors import NoUsableResults, ResultsUnreadable
from mgpubench.results.read import is_from_future, sessions_from_future
from tests.conftest import make_run_record as run
from tests.runs_csv import write_session

MONDAY, TUESDAY, WEDNESDAY, THURSDAY = (f"2026112{day}T120000Z-000000" for day in range(3, 7))


def runs(*modes: str, rounds: int = 2, **changes: Any) -> list[Any]:
    return [run(mode, round=number + 1, **changes) for mode in modes for number in range(rounds)]


def selected(root: Path) -> dict[str, set[str]]:
    return {folder.name: modes for folder, modes in select_sessions(root).modes.items()}


ALL = set(MODES)


def test_a_newest_session_with_all_modes_stands_alone(tmp_path: Path) -> None:
    """A second run of all modes takes no verdict away."""
    write_session(tmp_path, MONDAY, runs("single", "dp", "ddp"))
    write_session(tmp_path, TUESDAY, runs("single", "dp", "ddp"))
    selection = select_sessions(tmp_path)
    assert selected(tmp_path) == {TUESDAY: ALL}
    assert selection.left_out == 1
    assert {record.session_id for record in selection.read().records} == {TUESDAY}


def test_runs_of_one_mode_each_meet(tmp_path: Path) -> None:
    """`run --mode dp`, `run --mode ddp`, `compare`."""
    write_session(tmp_path, MONDAY, runs("dp"))
    write_session(tmp_path, TUESDAY, runs("ddp"))
    assert selected(tmp_path) == {TUESDAY: ALL, MONDAY: {"dp"}}
    selection = select_sessions(tmp_path)
    assert selection.left_out == 0
    rows = {row.mode: row for row in compare(selection.read().records, None, 0.02)}
    versus = rows["ddp"].versus_dp
    assert versus is not None
    assert (versus.ratio, versus.verdict) == (1.0, None)


def test_only_the_modes_of_all_are_lacking(tmp_path: Path) -> None:
    """fsdp is never added, but the others are added to it."""
    write_session(tmp_path, MONDAY, runs("single", "dp", "fsdp"))
    write_session(tmp_path, TUESDAY, runs("ddp"))
    assert selected(tmp_path) == {TUESDAY: ALL, MONDAY: {"single", "dp"}}
    write_session(tmp_path, WEDNESDAY, runs("fsdp"))
    expected = {WEDNESDAY: ALL, TUESDAY: {"ddp"}, MONDAY: {"single", "dp"}}
    assert selected(tmp_path) == expected


def test_each_mode_that_is_lacking_comes_from_the_newest_session_that_has_it(
    tmp_path: Path,
) -> None:
    write_session(tmp_path, MONDAY, runs("single", "dp"))
    write_session(tmp_path, TUESDAY, runs("single"))
    write_session(tmp_path, WEDNESDAY, runs("dp"))
    write_session(tmp_path, THURSDAY, runs("ddp"))
    assert selected(tmp_path) == {THURSDAY: ALL, WEDNESDAY: {"dp"}, TUESDAY: {"single"}}
    assert select_sessions(tmp_path).left_out == 1


def test_no_row_of_a_mode_that_the_newest_session_has_is_added(tmp_path: Path) -> None:
    """It would make two sessions of one, and take away the interval of ddp against single."""
    write_session(tmp_path, MONDAY, runs("single", "dp", "ddp"))
    write_session(tmp_path, TUESDAY, runs("single", "ddp"))
    assert selected(tmp_path) == {TUESDAY: ALL, MONDAY: {"dp"}}
    records = select_sessions(tmp_path).read().records
    found = {(record.session_id, record.mode) for record in records}
    assert found == {(TUESDAY, "single"), (TUESDAY, "ddp"), (MONDAY, "dp")}


def test_sessions_of_other_work_are_passed_over(tmp_path: Path) -> None:
    write_session(tmp_path, MONDAY, runs("dp"))
    write_session(tmp_path, TUESDAY, runs("dp", steps=9))
    write_session(tmp_path, WEDNESDAY, runs("dp", environment="0badcafe"))
    write_session(tmp_path, THURSDAY, runs("ddp"))
    assert selected(tmp_path) == {THURSDAY: ALL, MONDAY: {"dp"}}


def test_a_session_without_equal_work_is_shown_alone(tmp_path: Path) -> None:
    write_session(tmp_path, MONDAY, runs("dp", steps=9))
    write_session(tmp_path, TUESDAY, runs("ddp"))
    assert selected(tmp_path) == {TUESDAY: ALL}
    assert select_sessions(tmp_path).left_out == 1


def test_a_mode_of_which_no_run_succeeded_is_lacking(tmp_path: Path) -> None:
    failed = [run("dp", None, status="failed")]
    write_session(tmp_path, MONDAY, runs("dp"))
    write_session(tmp_path, TUESDAY, [*runs("ddp"), *failed])
    write_session(tmp_path, WEDNESDAY, failed)
    assert selected(tmp_path) == {TUESDAY: ALL, MONDAY: {"dp"}}
    # The failure of the newest session is still shown.
    records = select_sessions(tmp_path).read().records
    assert sorted(record.status for record in records if record.mode == "dp") == [
        "failed", "ok", "ok",
    ]  # fmt: skip


def test_the_newest_session_is_the_latest_with_a_run_that_succeeded(tmp_path: Path) -> None:
    write_session(tmp_path, MONDAY, runs("single", "dp", "ddp"))
    write_session(tmp_path, TUESDAY, [run("dp", None, status="failed"), *runs("single", "ddp")])
    write_session(tmp_path, WEDNESDAY, [run("dp", None, status="failed")])
    (tmp_path / THURSDAY).mkdir()
    (tmp_path / THURSDAY / "runs.csv").touch()
    assert next(iter(selected(tmp_path))) == TUESDAY
    assert select_sessions(tmp_path).left_out == 2


def test_a_folder_with_a_name_of_its_own_is_never_the_newest(tmp_path: Path) -> None:
    write_session(tmp_path, "zzz-copy", runs("single", "dp", "ddp"))
    write_session(tmp_path, MONDAY, runs("single", "dp", "ddp"))
    assert selected(tmp_path) == {MONDAY: ALL}
    assert select_sessions(tmp_path).left_out == 0


def test_a_session_folder_itself_can_be_the_root(tmp_path: Path) -> None:
    folder = write_session(tmp_path, MONDAY, runs("dp", "ddp"))
    assert selected(folder) == {MONDAY: ALL}


def test_cpus_without_a_name_do_not_meet(tmp_path: Path) -> None:
    cpu = {"device_type": "cpu", "device_names": "2x CPU"}
    write_session(tmp_path, MONDAY, runs("dp", **cpu))
    write_session(tmp_path, TUESDAY, runs("ddp", **cpu))
    assert selected(tmp_path) == {TUESDAY: ALL}


def of_variants(mode: str, **changes: Any) -> list[Any]:
    return [
        record
        for number, name in enumerate(("aa-1", "aa-2"), start=1)
        for record in runs(mode, variant=name, variant_number=number, **changes)
    ]


def test_a_session_of_variants_and_one_without_do_not_meet(tmp_path: Path) -> None:
    """`run`, `run --mode ddp --aa`, `compare`: the answer is about the variants alone."""
    write_session(tmp_path, MONDAY, of_variants("dp"))
    write_session(tmp_path, TUESDAY, runs("single", "dp", "ddp"))
    write_session(tmp_path, WEDNESDAY, of_variants("ddp"))
    assert selected(tmp_path) == {WEDNESDAY: ALL, MONDAY: {"dp"}}
    write_session(tmp_path, THURSDAY, runs("ddp"))
    assert selected(tmp_path) == {THURSDAY: ALL, TUESDAY: {"single", "dp"}}


def test_no_session_and_no_run_that_succeeded_are_different_errors(tmp_path: Path) -> None:
    with pytest.raises(ResultsUnreadable, match="has no sessions"):
        select_sessions(tmp_path)
    write_session(tmp_path, MONDAY, [run("dp", None, status="failed")])
    with pytest.raises(NoUsableResults, match="no results in") as caught:
        select_sessions(tmp_path)
    assert str(tmp_path) in caught.value.message
    assert "column `error`" in caught.value.hint


def test_the_folders_of_the_selected_sessions_are_known(tmp_path: Path) -> None:
    first = write_session(tmp_path, MONDAY, runs("dp"))
    second = write_session(tmp_path, TUESDAY, runs("ddp"))
    assert select_sessions(tmp_path).read().folders == {MONDAY: first, TUESDAY: second}


def test_a_session_from_the_future_is_not_the_newest(tmp_path: Path) -> None:
    """It was made while the clock was 400 days ahead."""
    future = f"{datetime.now(UTC) + timedelta(days=400):%Y%m%dT%H%M%SZ}-000000"
    write_session(tmp_path, future, runs("single", "dp", "ddp"))
    write_session(tmp_path, TUESDAY, runs("single", "dp", "ddp"))
    assert selected(tmp_path) == {TUESDAY: ALL}
    assert sessions_from_future(tmp_path) == [tmp_path / future]
    assert not is_from_future(tmp_path / TUESDAY)
    soon = f"{datetime.now(UTC) + timedelta(minutes=2):%Y%m%dT%H%M%SZ}-000000"
    assert not is_from_future(tmp_path / soon)  # another machine's clock
    assert not is_from_future(tmp_path / "20261345T990000Z-000000")
    assert not is_from_future(tmp_path / "example")
