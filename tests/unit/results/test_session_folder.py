"""What is written: folders, session.json, and rows that survive any failure."""

import csv
import json
import os
import secrets
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from mgpubench.errors import BenchError, RequestRefused
from mgpubench.results.read import read_runs
from mgpubench.results.schema import RunRecord, StepRecord, run_id
from mgpubench.results.session_folder import check_writable, digest_of, open_session

NOON = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)

RUN_HEADER = (
    "schema_version run_id session_id round position started_at status error mode effective_mode "
    "device_type num_devices world_size num_nodes backend model num_parameters parameter_bytes "
    "data dataset_samples image_size precision channels_last compiled scaling batch_per_device "
    "global_batch workers_per_device threads_per_rank options warmup_steps steps samples window_s "
    "throughput_samples_per_s throughput_per_device_samples_per_s step_time_median_s "
    "step_time_p95_s step_time_p99_s step_time_max_s data_wait_s peak_memory_bytes seed "
    "device_names machine torch_version cuda_version nccl_version driver_version python_version "
    "mgpubench_version findings"
)

RUN = RunRecord(
    schema_version=1,
    run_id="r1",
    session_id="s1",
    round=1,
    status="ok",
    mode="ddp",
    effective_mode="ddp",
    num_devices=2,
    channels_last=False,
    compiled=True,
    samples=800,
    window_s=0.1 + 0.2,
    throughput_samples_per_s=800 / (0.1 + 0.2),
)
STEP = StepRecord(
    run_id="r1", rank=0, step=1, phase="measured", step_time_s=0.1, data_wait_s=0.0, samples=8
)


@pytest.fixture
def session(tmp_path):
    return open_session(tmp_path / "results", {"argv": ["run"]}, NOON)


def rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_header_of_runs_csv_is_the_contract(session):
    added = ["skipped_images", "compile_s", "recompiles", "model_digest", "others_cpu_share"]
    added += ["loader_workers", "dataset_digest", "variant", "variant_number", "sitting"]
    added += ["environment", "method_version", "rounds_added", "step_time_change"]
    added += ["optimizer", "accumulate", "skipped_steps", "warmup_s"]
    added += ["peak_reserved_bytes", "gpu_power_mean_w", "energy_j", "samples_per_joule"]
    added += ["gpu_temperature_max_c", "gpu_utilization_mean", "gpu_utilization_per_device"]
    added += ["throttle_reasons"]
    assert rows(session.folder / "runs.csv") == [RUN_HEADER.split() + added]


@pytest.mark.parametrize(
    ("position", "sitting", "name"),
    [(1, 1, "s1-001"), (12, 1, "s1-012"), (1234, 1, "s1-1234"), (12, 2, "s1-012-2")],
)
def test_a_run_that_is_repeated_in_another_sitting_has_another_name(position, sitting, name):
    assert run_id("s1", position, sitting) == name


def test_header_of_steps_csv_is_the_contract(session):
    assert (session.folder / "steps.csv").read_text() == (
        "run_id,rank,step,phase,step_time_s,data_wait_s,samples\n"
    )


def test_session_folder_is_named_by_utc_time_and_id(tmp_path):
    vienna = NOON.astimezone(timezone(timedelta(hours=1)))
    session = open_session(tmp_path, {}, vienna)
    assert session.folder.parent == tmp_path
    assert session.id == session.folder.name
    stamp, _, tail = session.id.partition("-")
    assert stamp == "20261129T120000Z"
    assert len(bytes.fromhex(tail)) == 3


def test_session_json_holds_the_document_its_id_and_the_schema_version(session):
    document = json.loads((session.folder / "session.json").read_text(encoding="utf-8"))
    digest = document.pop("digest")
    assert document == {"schema_version": 1, "session_id": session.id, "argv": ["run"]}
    assert digest == digest_of(document)
    assert sorted(path.name for path in session.folder.iterdir()) == [
        "runs.csv",
        "session.json",
        "steps.csv",
    ]


def test_session_json_keeps_umlauts_readable(tmp_path):
    session = open_session(tmp_path / "res ä" / "my out", {"data": "Käfer"}, NOON)
    assert '"data": "Käfer"' in (session.folder / "session.json").read_text(encoding="utf-8")


def test_a_digest_still_matches_when_a_name_that_is_not_utf8_is_read_back(tmp_path):
    session = open_session(tmp_path, {"data": "caf\udce9", "gpus": (1, 2)}, NOON)
    document = json.loads((session.folder / "session.json").read_text(encoding="utf-8"))
    assert document.pop("digest") == digest_of(document)
    assert document["data"] == "caf\udce9"


def test_a_digest_depends_on_all_of_the_content():
    document = {"request": {"gpus": (1, 2), "model": None}, "argv": ["Käfer", "caf\udce9"]}
    digest = digest_of(document)
    assert len(bytes.fromhex(digest)) == 8
    assert digest == digest_of(
        {"request": {"gpus": [1, 2], "model": None}, "argv": document["argv"]}
    )
    others = [
        {**document, "more": None},
        {**document, "argv": ["Käfer"]},
        {**document, "request": {"gpus": [2, 1], "model": None}},
        {**document, "request": {"gpus": [1, 2], "model": ""}},
        {**document, "request": {"gpus": [1.0, 2], "model": None}},
    ]
    assert len({digest, *map(digest_of, others)}) == 6


def test_a_folder_that_exists_is_never_used_again(tmp_path, monkeypatch):
    ids = iter(["aaaaaa", "aaaaaa", "bbbbbb"])
    monkeypatch.setattr(secrets, "token_hex", lambda nbytes: next(ids))
    first, second = open_session(tmp_path, {}, NOON), open_session(tmp_path, {}, NOON)
    assert (first.id, second.id) == ("20261129T120000Z-aaaaaa", "20261129T120000Z-bbbbbb")


def test_a_row_read_again_is_equal_in_every_cell(session):
    """C26: None, NA and empty come back as they were; quotes and commas too."""
    strange = replace(
        RUN,
        precision="None",
        options="NA",
        device_names='1x "X", 24 GB + 1x Ÿ',
        error="one, and two",
        round=None,
        seed=2**62,
    )
    session.append(strange, [])
    session.append(replace(RUN, run_id="r2", status="failed", throughput_samples_per_s=None), [])
    records = read_runs(session.folder / "runs.csv").records
    assert records[0] == strange
    assert [record.run_id for record in records] == ["r1", "r2"]


def test_steps_are_written_with_all_their_digits(session):
    session.append(RUN, [replace(STEP, step_time_s=0.1 + 0.2)])
    assert rows(session.folder / "steps.csv")[1:] == [
        ["r1", "0", "1", "measured", "0.30000000000000004", "0.0", "8"]
    ]


def test_one_row_is_one_line_with_any_text_in_it(session):
    session.append(replace(RUN, error="10 %\r20\n%\0"), [])
    session.append(replace(RUN, run_id="r2"), [])
    records = read_runs(session.folder / "runs.csv").records
    assert [record.error for record in records] == ["10 % 20 %\N{REPLACEMENT CHARACTER}", ""]
    assert len((session.folder / "runs.csv").read_bytes().splitlines()) == 3


def test_a_file_name_that_is_not_utf8_does_not_cost_the_run(session):
    session.append(replace(RUN, data="imagefolder:caf\udce9"), [])
    assert read_runs(session.folder / "runs.csv").records[0].data == "imagefolder:caf\\udce9"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_are_a_bug_and_never_get_into_a_file(session, value):
    before = (session.folder / "runs.csv").read_bytes()
    with pytest.raises(ValueError, match="must not get into a result file"):
        session.append(replace(RUN, data_wait_s=value), [])
    assert (session.folder / "runs.csv").read_bytes() == before


def test_a_failure_while_steps_are_written_leaves_both_files_as_they_were(session):
    session.append(RUN, [STEP])
    before = {name: (session.folder / name).read_bytes() for name in ("runs.csv", "steps.csv")}

    def failing_steps():
        yield from [STEP] * 5000
        raise RuntimeError("rank 1 left no steps")

    with pytest.raises(RuntimeError):
        session.append(replace(RUN, run_id="r2"), failing_steps())
    assert before == {name: (session.folder / name).read_bytes() for name in before}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("name", "other", "lines_of_other"),
    [("steps.csv", "runs.csv", 1), ("runs.csv", "steps.csv", 2)],
)
def test_a_full_disk_is_an_error_that_names_the_file(session, name, other, lines_of_other):
    (session.folder / name).unlink()
    (session.folder / name).symlink_to("/dev/full")
    with pytest.raises(BenchError, match=f"{name} cannot be written: No space left") as caught:
        session.append(RUN, [STEP])
    assert caught.value.exit_code == 1
    # A run whose steps could not be written has no row either.
    assert len(rows(session.folder / other)) == lines_of_other


def test_missing_parents_are_allowed_and_checking_makes_nothing(tmp_path):
    check_writable(tmp_path / "new" / "results")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "sub", "sub/sub"])
def test_a_file_in_the_way_is_refused(tmp_path, below):
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestRefused, match="file is not a folder") as caught:
        check_writable(tmp_path / "file" / below)
    assert str(tmp_path / "file" / below) in caught.value.message
    assert caught.value.exit_code == 2


def test_a_dangling_link_in_the_way_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RequestRefused, match="link is not a folder"):
        check_writable(tmp_path / "link")


def test_a_folder_without_permission_is_refused(tmp_path, monkeypatch):
    # Faked, because root may write everywhere.
    asked = []
    monkeypatch.setattr(os, "access", lambda place, mode: asked.append((place, mode)))
    with pytest.raises(RequestRefused, match="is not writable"):
        check_writable(tmp_path / "results")
    assert asked == [(tmp_path, os.W_OK | os.X_OK)]


def test_a_relative_folder_is_checked_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_writable(Path("results"))
    (tmp_path / "results").write_text("")
    with pytest.raises(RequestRefused, match="results is not a folder"):
        check_writable(Path("results"))


def test_a_session_that_cannot_be_made_is_refused_before_any_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestRefused, match="results cannot be written to"):
        open_session(tmp_path / "file" / "results", {}, NOON)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "'=1", "plain", "'"])
def test_a_text_that_a_spreadsheet_would_run_is_no_formula_and_comes_back(session, text):
    record = replace(RUN, error=text, session_id=session.id)
    session.append(record, [])
    cell = rows(session.folder / "runs.csv")[1][RUN_HEADER.split().index("error")]
    assert not cell.startswith(("=", "+", "-", "@", "\t"))
    (read,) = read_runs(session.folder / "runs.csv").records
    assert read.error == text


@pytest.mark.parametrize("rows", ["runs.csv", "epochs.csv"])
@pytest.mark.parametrize("below", ["", "checkpoints", "new/folder"])
def test_a_session_is_not_made_inside_another_one(tmp_path: Path, rows: str, below: str) -> None:
    """compare looks for sessions in the folder that is named, and no deeper."""
    session = tmp_path / "results" / "20260101T000000Z-abcdef"
    session.mkdir(parents=True)
    (session / "session.json").touch()
    check_writable(session)  # any program may have made that
    (session / rows).touch()
    with pytest.raises(RequestRefused, match=f"{session} is the folder of a session") as caught:
        check_writable(session / below)
    assert caught.value.hint.endswith(f"--out {session.parent}")
    check_writable(session.parent)
