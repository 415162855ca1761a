"""What a broken-off session lacks, and when it may not be gone on with."""

from __future__ import annotations

import csv
import errno
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mgpubench import __version__
from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.errors import RequestRefused
from mgpubench.machine import host
from mgpubench.results.schema import StepRecord, run_id
from mgpubench.results.session_folder import Session, open_session, reopen_session
from mgpubench.session.resume import Progress, check_unchanged, load_session, read_progress
from tests.conftest import make_run_record

MakeMachine = Callable[..., Machine]
CONDITIONS: dict[str, Any] = {
    "machine": {"torch_version": "2.14.1", "gpus": [{"uuid": "GPU-1"}]},
    "environment": {"OMP_NUM_THREADS": "2"},
    "dataset": None,
    "model_facts": {"num_parameters": 7},
}


@pytest.fixture
def request_of() -> Request:
    return Request(gpus=(2,), modes=("dp", "ddp"), rounds=2, bucket_cap_mb=50.0, seed=3)


@pytest.fixture
def session(tmp_path: Path, machine: MakeMachine, request_of: Request) -> Session:
    """A session of four runs, of which none has been made."""
    plan = make_plan(request_of, machine(2))
    document = {
        "mgpubench_version": __version__,
        "mgpubench_commit": host.own_commit(),
        "request": asdict(request_of),
        "plan": [asdict(run) for run in plan.runs],
        "notices": ["a notice"],
        **CONDITIONS,
    }
    with open_session(tmp_path, document, datetime.now(UTC)) as session:
        return session


def progress_of(folder: Path) -> Progress:
    return read_progress(load_session(folder))


def positions(progress: Progress) -> list[int]:
    return [run.position for run in progress.missing.runs]


def append(session: Session, position: int, **changes: Any) -> None:
    name = run_id(session.id, position)
    step = StepRecord(
        run_id=name, rank=0, step=1, phase="measured", step_time_s=1.0, data_wait_s=0.0, samples=8
    )
    record = make_run_record("dp", position=position, run_id=name, session_id=session.id, **changes)
    session.append(record, [step])


def test_request_and_plan_come_back_as_they_were(
    session: Session, machine: MakeMachine, request_of: Request
) -> None:
    saved = load_session(session.folder)
    assert saved.request == request_of
    assert saved.plan.runs == make_plan(request_of, machine(2)).runs
    assert read_progress(saved).missing.runs == saved.plan.runs


def test_what_is_missing_or_failed_is_made_again_in_the_old_order(session: Session) -> None:
    append(session, 1)
    append(session, 2, status="failed", throughput_samples_per_s=None)
    append(session, 4)
    progress = progress_of(session.folder)
    assert positions(progress) == [2, 3]
    assert [record.position for record in progress.finished] == [1, 4]


def test_a_line_that_cannot_be_used_is_told_and_its_run_made_again(session: Session) -> None:
    append(session, 1)
    append(session, 2)
    path = session.folder / "runs.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], lines[2].replace(",dp,", ",dp,9,")]) + "\n")
    progress = progress_of(session.folder)
    assert positions(progress) == [2, 3, 4]
    assert "line 3" in progress.warnings[0]


@pytest.mark.parametrize("name", ["a100-night", "link", "."])
def test_a_session_is_known_by_its_id_whatever_its_folder_is_called(
    session: Session, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(session, 1)
    folder = session.folder.parent / name
    if name == "link":
        folder.symlink_to(session.folder)
    elif name == ".":
        folder = Path()
        monkeypatch.chdir(session.folder)
    else:
        session.folder.rename(folder)
    assert positions(progress_of(folder)) == [2, 3, 4]
    with reopen_session(folder, load_session(folder).id) as reopened:
        assert reopened.id == session.id
        append(reopened, 2)
    assert positions(progress_of(folder)) == [3, 4]


@pytest.mark.parametrize("leftover", [None, "", "schema_ver"])
def test_a_session_that_was_killed_as_it_began_lacks_everything(
    session: Session, leftover: str | None
) -> None:
    path = session.folder / "runs.csv"
    path.unlink()
    if leftover is not None:
        path.write_text(leftover)
    with reopen_session(session.folder, session.id) as reopened:
        assert len(progress_of(session.folder).missing.runs) == 4
        append(reopened, 1)
    assert len(progress_of(session.folder).finished) == 1


@pytest.mark.parametrize("finished", [0, 1])
@pytest.mark.parametrize("rest", [b"", b"\0" * 4096])
def test_half_a_line_and_steps_without_a_run_go(
    session: Session, finished: int, rest: bytes
) -> None:
    """The last line was being written as the disk filled up, or as the power failed."""
    for position in range(1, finished + 2):
        append(session, position)
    runs, steps = session.folder / "runs.csv", session.folder / "steps.csv"
    whole = runs.read_bytes().splitlines(keepends=True)
    kept = b"".join(whole[: 1 + finished])
    runs.write_bytes(kept + whole[1 + finished][:30] + rest)
    assert len(progress_of(session.folder).missing.runs) == 4 - finished
    with reopen_session(session.folder, session.id) as reopened:
        assert "runs.csv: the last line was not finished" in reopened.repairs[0]
        assert runs.read_bytes() == kept
        progress = progress_of(session.folder)
        assert progress.warnings == ()
        reopened.keep_steps_of({record.run_id for record in progress.finished})
    with steps.open(newline="") as file:
        assert [row["run_id"] for row in csv.DictReader(file)] == [
            run_id(session.id, 1) for _ in range(finished)
        ]


def test_a_last_line_without_its_end_is_made_again_and_not_lost_unseen(session: Session) -> None:
    """An editor may have taken the line feed away; or the last cell is half of itself."""
    append(session, 1)
    append(session, 2)
    path = session.folder / "runs.csv"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    with reopen_session(session.folder, session.id) as reopened:
        assert len(reopened.repairs) == 1
        assert positions(progress_of(session.folder)) == [2, 3, 4]


def test_steps_are_not_touched_where_the_disk_is_full(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(session, 1)
    before = (session.folder / "steps.csv").read_bytes()

    def fsync(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with (
        reopen_session(session.folder, session.id) as reopened,
        pytest.raises(RequestRefused, match="No space left"),
    ):
        reopened.keep_steps_of(set())
    assert (session.folder / "steps.csv").read_bytes() == before
    assert not list(session.folder.glob(".*"))


def test_steps_that_are_no_text_do_not_matter(session: Session) -> None:
    append(session, 1)
    path = session.folder / "steps.csv"
    path.write_bytes(path.read_bytes() + b"\xff\xfe,0,1\n")
    with reopen_session(session.folder, session.id) as reopened:
        reopened.keep_steps_of({run_id(session.id, 1)})
    assert len(path.read_bytes().splitlines()) == 2


@pytest.mark.parametrize("name", ["runs.csv", "steps.csv"])
def test_no_row_is_added_below_columns_of_another_program(session: Session, name: str) -> None:
    path = session.folder / name
    header, *rows = path.read_text().splitlines()
    columns = header.split(",")
    path.write_text("\n".join([",".join([*columns[1:], columns[0]]), *rows]) + "\n")
    before = path.read_bytes()
    with pytest.raises(RequestRefused, match=f"{name} has not the columns"):
        reopen_session(session.folder, session.id)
    assert path.read_bytes() == before


def test_two_processes_cannot_share_a_session(session: Session) -> None:
    with (
        reopen_session(session.folder, session.id),
        pytest.raises(RequestRefused, match="another mgpubench is at work"),
    ):
        reopen_session(session.folder, session.id)
    with reopen_session(session.folder, session.id):
        pass


def test_the_same_conditions_are_fine(session: Session) -> None:
    check_unchanged(load_session(session.folder), CONDITIONS)


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        (
            "machine",
            {"torch_version": "2.6.0", "gpus": [{"uuid": "GPU-1"}]},
            "machine.torch_version was '2.14.1' and is '2.6.0'",
        ),
        ("machine", {"torch_version": "2.14.1", "gpus": []}, "machine.gpus was [{"),
        ("environment", {}, "environment.OMP_NUM_THREADS was '2' and is None"),
        ("dataset", {"samples": 7}, "dataset was None and is {'samples': 7}"),
        ("model_facts", {"num_parameters": 8}, "model_facts.num_parameters was 7 and is 8"),
    ],
)
def test_what_has_changed_is_named(session: Session, part: str, value: object, words: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        check_unchanged(load_session(session.folder), {**CONDITIONS, part: value})
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mgpubench_version": "0.0.1"}, r"mgpubench 0\.0\.1 .*made this session"),
        ({"mgpubench_commit": "0123456789ab"}, "commit 0123456789ab, .*made this session"),
        ({"schema_version": 2}, "schema 2\\) made this session, .*schema 1\\)"),
        ({"plan": []}, "it plans no run"),
        ({"session_id": ["a"]}, "session_id and notices are text"),
        ({"plan": ["x"]}, "session.json is not as mgpubench writes it"),
        ({"request": [1]}, "session.json is not as mgpubench writes it"),
        ({"plan": [{"round": 1}]}, "session.json is not as mgpubench writes it"),
        ({"request": {"color": 1}}, "session.json is not as mgpubench writes it"),
    ],
)
def test_a_session_of_another_kind_is_refused(
    session: Session, change: dict[str, object], words: str
) -> None:
    path = session.folder / "session.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(RequestRefused, match=words):
        load_session(session.folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", "20"),
        ("timeout_s", None),
        ("options", 5),
        ("options", [["a", "b", "c"]]),
        ("batch_per_device", 0),
        ("world_size", 0),
        ("mode", "foo"),
        ("position", 1),
        ("channels_last", 1),
    ],
)
def test_a_plan_that_somebody_has_edited_is_refused(
    session: Session, field: str, value: object
) -> None:
    path = session.folder / "session.json"
    document = json.loads(path.read_text())
    document["plan"][1][field] = value
    path.write_text(json.dumps(document))
    with pytest.raises(RequestRefused, match=r"session\.json is not as mgpubench writes it"):
        load_session(session.folder)


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 100_000, None])
def test_what_is_no_session_is_refused_with_its_path(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "session.json").write_text(content)
    with pytest.raises(RequestRefused, match=r"--resume .*session\.json"):
        load_session(tmp_path)
