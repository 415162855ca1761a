"""What an unfinished session lacks, and when it may not be resumed."""

from __future__ import annotations

import csv
import errno
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mgpubench.errors import RequestRefused
from mgpubench.results.read import read_runs
from mgpubench.results.schema import StepRecord, run_id
from mgpubench.results.session_folder import Session, open_session, reopen_session
from mgpubench.session.document import SavedSession, load_session
from mgpubench.session.resume import (
    Progress,
    Resume,
    check_unchanged,
    load_runs,
    read_progress,
    runs_to_make,
)
from tests.conftest import make_run_record
from tests.unit.session.conftest import CONDITIONS


def progress_of(folder: Path) -> Progress:
    return read_progress(load_session(folder))


def positions(progress: Progress) -> list[int]:
    """The runs that are missing, one by one."""
    return [run.position for run in progress.missing(progress.plan)]


def again(progress: Progress) -> list[int]:
    """All runs of the rounds that are not complete."""
    return [run.position for run in progress.missing_rounds(progress.plan)]


def append(session: Session, position: int, sitting: int = 1, **changes: Any) -> None:
    name = run_id(session.id, position, sitting)
    step = StepRecord(
        run_id=name, rank=0, step=1, phase="measured", step_time_s=1.0, data_wait_s=0.0, samples=8
    )
    identity = {
        "position": position,
        "round": (position + 1) // 2,
        "run_id": name,
        "session_id": session.id,
        "sitting": sitting,
    }
    session.append(make_run_record("dp", **{**identity, **changes}), [step])


def test_a_session_without_runs_lacks_all_of_its_plan(session: Session) -> None:
    saved = load_session(session.folder)
    progress = read_progress(saved)
    assert progress.plan == saved.plan
    assert progress.missing(saved.plan) == progress.missing_rounds(saved.plan) == [*saved.plan.runs]
    assert (progress.records, progress.warnings, progress.sitting) == ((), (), 2)


def test_runs_that_are_missing_or_failed_are_repeated_in_their_order(session: Session) -> None:
    append(session, 1)
    append(session, 2, status="failed", throughput_samples_per_s=None)
    append(session, 4)
    progress = progress_of(session.folder)
    assert positions(progress) == [2, 3]
    assert progress.finished_ids == {run_id(session.id, position) for position in (1, 4)}


def test_the_whole_of_an_incomplete_round_is_made_again(session: Session) -> None:
    """Runs of two sittings are no pair."""
    append(session, 1)
    append(session, 2)
    append(session, 3)
    progress = progress_of(session.folder)
    assert again(progress) == [3, 4]
    (note,) = progress.repeated(progress.missing_rounds(progress.plan))
    assert note.startswith("round 2: all 2 runs are repeated, since only runs of one call")
    assert "--resume-only-missing" in note


def test_a_round_without_a_run_is_not_made_again_but_for_the_first_time(session: Session) -> None:
    append(session, 1)
    append(session, 2)
    append(session, 3, status="failed", throughput_samples_per_s=None)
    progress = progress_of(session.folder)
    assert again(progress) == [3, 4]
    assert list(progress.repeated(progress.missing_rounds(progress.plan))) == []


def test_a_round_is_complete_only_within_one_sitting(session: Session) -> None:
    append(session, 1)
    append(session, 2, sitting=2)
    append(session, 3, sitting=2)
    append(session, 4, sitting=2)
    progress = progress_of(session.folder)
    assert again(progress) == [1, 2]
    assert positions(progress) == []
    assert progress.sitting == 3


def test_a_round_that_was_completed_in_a_later_sitting_stays(session: Session) -> None:
    append(session, 1)
    for position in (1, 2):
        append(session, position, sitting=2)
    assert again(progress_of(session.folder)) == [3, 4]


def test_rows_of_older_versions_are_of_the_first_sitting(session: Session) -> None:
    for position in range(1, 5):
        append(session, position, sitting=1)
    path = session.folder / "runs.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["sitting"] = ""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    progress = progress_of(session.folder)
    assert (again(progress), progress.sitting) == ([], 2)


def test_rounds_that_were_added_belong_to_the_plan(session: Session) -> None:
    for position in range(1, 6):
        append(session, position)
    progress = progress_of(session.folder)
    assert progress.plan.rounds == 3
    assert progress.plan.runs[:4] == load_session(session.folder).plan.runs
    assert again(progress) == [5, 6]


def test_a_round_that_does_not_fit_its_position_adds_no_rounds(session: Session) -> None:
    """Edited to 3,000,000 it would make millions of runs."""
    append(session, 1, round=3_000_000)
    assert progress_of(session.folder).plan.rounds == 2


def test_more_rounds_are_added_in_the_order_that_continues_the_plan(session: Session) -> None:
    for position in range(1, 5):
        append(session, position)
    progress = progress_of(session.folder)
    resume = Resume(folder=session.folder, rounds=4, timeout_s=5.0)
    plan, runs = runs_to_make(progress, resume)
    assert plan.rounds == 4
    assert [run.position for run in runs] == [5, 6, 7, 8]
    assert {(run.round, run.mode) for run in runs} == {
        (number, mode) for number in (3, 4) for mode in ("dp", "ddp")
    }
    assert {run.timeout_s for run in runs} == {5.0}
    fewer, none = runs_to_make(progress, Resume(folder=session.folder, rounds=1))
    assert (fewer.rounds, none) == (2, [])


def test_only_the_missing_runs_are_made_if_that_is_wanted(session: Session) -> None:
    append(session, 1)
    append(session, 4)
    progress = progress_of(session.folder)
    _, runs = runs_to_make(progress, Resume(folder=session.folder, only_missing=True))
    assert [run.position for run in runs] == [2, 3]
    assert list(progress.repeated(runs)) == []


def test_a_line_that_cannot_be_used_is_named_and_its_run_repeated(session: Session) -> None:
    append(session, 1)
    append(session, 2)
    path = session.folder / "runs.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], lines[2].replace(",dp,", ",dp,9,")]) + "\n")
    progress = progress_of(session.folder)
    assert positions(progress) == [2, 3, 4]
    assert "line 3" in progress.warnings[0]


@pytest.mark.parametrize("name", ["a100-night", "link", "."])
def test_a_session_is_known_by_its_id_and_not_by_the_name_of_its_folder(
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
def test_a_session_that_was_killed_at_its_start_lacks_everything(
    session: Session, leftover: str | None
) -> None:
    path = session.folder / "runs.csv"
    path.unlink()
    if leftover is not None:
        path.write_text(leftover)
    with reopen_session(session.folder, session.id) as reopened:
        assert len(positions(progress_of(session.folder))) == 4
        append(reopened, 1)
    assert len(progress_of(session.folder).finished_ids) == 1


@pytest.mark.parametrize("finished", [0, 1])
@pytest.mark.parametrize("rest", [b"", b"\0" * 4096])
def test_half_a_line_and_steps_without_a_run_are_removed(
    session: Session, finished: int, rest: bytes
) -> None:
    """The last line was being written when the disk filled up, or when the power failed."""
    for position in range(1, finished + 2):
        append(session, position)
    runs, steps = session.folder / "runs.csv", session.folder / "steps.csv"
    whole = runs.read_bytes().splitlines(keepends=True)
    kept = b"".join(whole[: 1 + finished])
    runs.write_bytes(kept + whole[1 + finished][:30] + rest)
    assert len(positions(progress_of(session.folder))) == 4 - finished
    with reopen_session(session.folder, session.id) as reopened:
        assert "runs.csv: the last line was unfinished" in reopened.repairs[0]
        assert runs.read_bytes() == kept
        progress = progress_of(session.folder)
        assert progress.warnings == ()
        reopened.keep_steps_of(progress.finished_ids)
    with steps.open(newline="") as file:
        assert [row["run_id"] for row in csv.DictReader(file)] == [
            run_id(session.id, 1) for _ in range(finished)
        ]


def test_the_run_of_a_last_line_without_its_end_is_repeated(session: Session) -> None:
    """An editor may have removed the line feed, or the last cell is incomplete."""
    append(session, 1)
    append(session, 2)
    path = session.folder / "runs.csv"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert [record.position for record in read_runs(path).records] == [1]  # compare agrees
    with reopen_session(session.folder, session.id) as reopened:
        assert len(reopened.repairs) == 1
        assert positions(progress_of(session.folder)) == [2, 3, 4]


def test_steps_are_not_touched_when_the_disk_is_full(
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
def test_no_row_is_added_to_columns_that_another_program_wrote(session: Session, name: str) -> None:
    path = session.folder / name
    header, *rows = path.read_text().splitlines()
    columns = header.split(",")
    path.write_text("\n".join([",".join([*columns[1:], columns[0]]), *rows]) + "\n")
    before = path.read_bytes()
    with pytest.raises(RequestRefused, match=f"{name} does not have the columns"):
        reopen_session(session.folder, session.id)
    assert path.read_bytes() == before


def test_two_processes_cannot_share_a_session(session: Session) -> None:
    with (
        reopen_session(session.folder, session.id),
        pytest.raises(RequestRefused, match="another mgpubench is writing"),
    ):
        reopen_session(session.folder, session.id)
    with reopen_session(session.folder, session.id):
        pass


def test_equal_conditions_are_accepted(session: Session) -> None:
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


PHOTOS = {"samples": 20, "classes": 2, "digest": "a", "name": "photos"}
TEST = {"samples": 1, "classes": 2, "digest": "b", "name": "test"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"datasets": [{**PHOTOS, "samples": 19, "digest": "c"}]},
            "the names or sizes of the images have changed; "
            "the folder photos had 20 images and has 19",
        ),
        (
            {"datasets": [{**PHOTOS, "classes": 3}]},
            "the folder photos had 2 class folders and has 3",
        ),
        (
            {"datasets": [{**PHOTOS, "name": "pictures"}]},
            "the folder was photos and is pictures",
        ),
        (
            {"evaluation": {**TEST, "samples": 2}},
            "the folder of --eval-data test had 1 image and has 2",
        ),
    ],
)
def test_changed_images_are_told_in_plain_english(
    session: Session, changes: dict[str, Any], words: str
) -> None:
    before = {"datasets": [PHOTOS], "evaluation": TEST}
    saved = load_session(session.folder)
    saved = SavedSession(
        id=saved.id,
        folder=saved.folder,
        document={**saved.document, **before},
        request=saved.request,
        plan=saved.plan,
    )
    check_unchanged(saved, before)
    with pytest.raises(RequestRefused) as caught:
        check_unchanged(saved, {**before, **changes})
    assert caught.value.message.endswith(f"since the session began: {words}")


def test_a_training_is_not_resumed_as_a_session_of_runs(tmp_path: Path, session: Session) -> None:
    assert load_runs(session.folder).id == session.id
    saved = load_session(session.folder)
    document = {**saved.document, "options": {}}
    with open_session(tmp_path / "trained", document, datetime.now(UTC)) as training:
        pass
    with pytest.raises(RequestRefused) as caught:
        load_runs(training.folder)
    assert caught.value.message.endswith("is a training, and not a session of mgpubench run")
    assert caught.value.hint.startswith("Go on with it: mgpubench train --resume ")
