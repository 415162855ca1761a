"""Method, findings, facts, sessions and the table of runs, each for itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpubench.analysis.compare import compare
from mgpubench.analysis.findings.catalogue import KINDS
from mgpubench.config.types import MODES
from mgpubench.report.columns import Column, comparison_columns
from mgpubench.report.html import method
from mgpubench.report.html.facts import alike, differing, facts_of
from mgpubench.report.html.findings import UNKNOWN_FINDING, explain
from mgpubench.report.html.runs_table import MAX_RUNS, in_order, runs_columns, shown
from mgpubench.report.html.sessions import MAX_SESSIONS, commands_to_see, sessions_of
from tests.conftest import make_run_record as run
from tests.unit.report.test_sentences import DP, THREE_MODES, rounds

ROWS = compare(THREE_MODES, None, 0.02)


def cells(columns: list[Column]) -> dict[str, list[str]]:
    return {column.header.replace("\n", " "): column.cells for column in columns}


# The method.


def test_the_method_is_ten_lines_that_begin_with_their_subject() -> None:
    lines = method.method_of(ROWS, THREE_MODES, 0.02)
    assert [line.partition(": ")[0] for line in lines] == [
        *("Work", "Model", "Data", "Modes", "Run"),
        *("Window", "Throughput", "Rounds", "Interval", "Verdict"),
    ]
    assert "in each of the 5 rounds every row ran once" in lines[7]
    assert lines[2] == "Data: synthetic, 224 px. Batch: 64 per device, on any number of devices."


def test_the_method_names_the_margin_and_the_modes_that_ran() -> None:
    lines = method.method_of(ROWS[:1], THREE_MODES, 0.05)
    assert lines[3] == "Modes: single is one device, without any parallelism."
    assert "within 5 % of 1" in lines[9]


def test_every_mode_is_explained() -> None:
    assert list(method.MODES) == list(MODES)


def test_tables_of_different_work_have_their_values_side_by_side() -> None:
    records = [
        *THREE_MODES,
        *rounds("dp", DP, model="vgg16", num_parameters=138_357_544, scaling="strong"),
    ]
    lines = method.method_of(compare(records, None, 0.02), records, 0.02)
    assert lines[1] == ("Model: resnet50 / vgg16 with 138,357,544 parameters. Precision: tf32.")
    assert "128 on all devices together" in lines[2]


def test_every_column_but_the_labels_has_a_meaning() -> None:
    """On the CPU or with one machine some columns are not there."""
    headers = [column.header for column in comparison_columns(ROWS)]
    explained = [name for name, _ in method.meanings_of(headers)]
    unexplained = [
        header.replace("\n", " ")
        for header in headers
        if not any(header.replace("\n", " ").startswith(name) for name in explained)
    ]
    assert unexplained == ["mode", "95 % CI of the total", "97.5 % CI of the ratio"]


# Findings.


def test_a_finding_has_the_words_of_the_catalogue_and_its_rows() -> None:
    records = [replace(r, findings="stalls" if (r.round or 0) < 3 else "") for r in THREE_MODES]
    (found,) = explain(compare(records, None, 0.02))
    assert found.meaning == KINDS["stalls"].meaning
    assert found.remedy == KINDS["stalls"].remedy
    assert found.places == [
        "single on 1 device, 2 of 5 runs",
        "dp on 2 devices, 2 of 5 runs",
        "ddp on 2 devices, 2 of 5 runs",
    ]


def test_a_finding_of_a_later_version_is_named() -> None:
    records = [replace(record, findings="not-invented;stalls") for record in THREE_MODES]
    known, unknown = explain(compare(records, None, 0.02))
    assert (known.code, unknown.code) == ("stalls", "not-invented")
    assert unknown.meaning == UNKNOWN_FINDING


def test_many_rows_with_a_finding_are_counted() -> None:
    records = [
        r
        for devices in range(2, 12)
        for r in rounds("ddp", DP, num_devices=devices, findings="stalls")
    ]
    (found,) = explain(compare(records, None, 0.02))
    assert found.places[-1] == "and 4 more rows"
    assert len(found.places) == 7


# Facts.

DOCUMENT: dict[str, Any] = {
    "session_id": "s1",
    "mgpubench_commit": "abc",
    "argv": ["run", "--mode", "dp,ddp", "--data", "my photos"],
    "system": {"cpu_model": "CPU Y", "cores": 16, "memory_bytes": 2**35, "is_virtual": False},
    "machine": {
        "gpus": [{"name": "NVIDIA X", "memory_bytes": 2**34}] * 2,
        "cuda_visible_devices": "0,1",
    },
    "torch": {"cudnn_version": 92400},
    "environment": {"NCCL_ALGO": "Ring, Tree"},
}


def test_facts_come_from_the_rows_and_from_session_json() -> None:
    records = [run("dp", torch_version="2.14"), run("ddp", backend="nccl", torch_version="2.14")]
    assert facts_of(records, DOCUMENT) == {
        "devices": "2x NVIDIA X",
        "GPUs": "2 x NVIDIA X, 16.0 GB",
        "CPU": "CPU Y",
        "cores": "16",
        "RAM": "32.0 GB",
        "virtual machine": "no",
        "torch": "2.14",
        "cuDNN": "9.24.0",
        "backend": "nccl",
        "its commit": "abc",
        "environment variables": "NCCL_ALGO=Ring, Tree",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }


def test_without_session_json_there_are_the_facts_of_the_rows() -> None:
    assert facts_of([run("dp", driver_version="580")], {}) == {
        "devices": "2x NVIDIA X",
        "driver": "580",
    }


@pytest.mark.parametrize(
    "document",
    [
        {"system": "a text", "machine": 3, "torch": [], "environment": ["A=B"]},
        {"system": {"cpu_model": {"a": [1]}, "memory_bytes": "much"}, "machine": {"gpus": {}}},
        {"machine": {"gpus": ["a text", None, {"name": 3}]}, "torch": {"cudnn_version": "9"}},
    ],
)
def test_a_strange_session_json_is_no_error(document: Mapping[str, Any]) -> None:
    assert facts_of([run("dp")], document)["devices"] == "2x NVIDIA X"


def test_what_sessions_share_and_what_differs() -> None:
    first = {"torch": "2.6", "CPU": "Y", "seed": "0"}
    second = {"torch": "2.7", "CPU": "Y"}
    assert alike([first, second]) == {"CPU": "Y"}
    assert differing([first, second]) == ["torch", "seed"]
    assert alike([]) == {}


# Sessions.


def write_document(folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    document = {**DOCUMENT, "session_id": folder.name, **changes}
    (folder / "session.json").write_text(json.dumps(document))
    return folder


def test_sessions_are_in_the_order_of_time_with_what_differs(tmp_path: Path) -> None:
    folders = {
        "s1": write_document(tmp_path / "s1", mgpubench_commit="new"),
        "s2": write_document(tmp_path / "s2"),
    }
    records = [
        run("dp", session_id="s1", started_at="2026-02-01T00:00:00+00:00", torch_version="2.7"),
        run("dp", session_id="s2", started_at="2026-01-01T00:00:00+00:00", torch_version="2.6"),
        run("ddp", None, session_id="s2", started_at="2026-01-01T00:01:00+00:00", status="failed",
            torch_version="2.6"),
    ]  # fmt: skip
    sessions = sessions_of(records, folders)
    assert cells(sessions.columns) == {
        "session": ["s2", "s1"],
        "first run (UTC)": ["2026-01-01 00:00:00", "2026-02-01 00:00:00"],
        "runs": ["1, 1 not ok", "1"],
        "torch": ["2.6", "2.7"],
        "its commit": ["abc", "new"],
    }
    assert sessions.common["CPU"] == "CPU Y"


def test_the_command_of_a_session_can_be_copied(tmp_path: Path) -> None:
    folder = write_document(tmp_path / "s1")
    assert sessions_of([run("dp")], {"s1": folder}).commands == [
        "NCCL_ALGO='Ring, Tree' CUDA_VISIBLE_DEVICES=0,1 mgpubench run --mode dp,ddp "
        "--data 'my photos'"
    ]


def test_the_document_of_another_session_is_not_believed(tmp_path: Path) -> None:
    folder = write_document(tmp_path / "s1", session_id="s9")
    assert sessions_of([run("dp")], {"s1": folder}).commands == []


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_a_session_json_that_cannot_be_read_is_unknown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "session.json").write_bytes(content)
    assert sessions_of([run("dp")], {"s1": tmp_path}).commands == []


def test_many_sessions_are_cut_to_the_newest() -> None:
    records = [
        run("dp", session_id=f"s{i:03d}", started_at=f"2026-01-01T{i // 60:02d}:{i % 60:02d}:00")
        for i in range(MAX_SESSIONS + 3)
    ]
    sessions = sessions_of(records, {})
    assert sessions.left_out == 3
    assert cells(sessions.columns)["session"][0] == "s003"


def test_the_commands_to_see_it_again_quote_the_paths() -> None:
    assert list(commands_to_see([Path("my results"), Path("-x")])) == [
        "mgpubench compare 'my results' ./-x",
        "mgpubench report 'my results' ./-x",
    ]
    assert list(commands_to_see([])) == ["mgpubench compare", "mgpubench report"]


# The table of runs.


def test_a_run_has_its_figures_in_the_units_of_the_header() -> None:
    record = run(
        "ddp",
        1234.5678,
        position=7,
        started_at="2026-11-30T04:29:24+00:00",
        step_time_median_s=0.0123456,
        step_time_p95_s=0.02,
        data_wait_s=0.5,
        window_s=5.0,
        others_cpu_share=0.012,
        peak_memory_bytes=f"{2**30};{3 * 2**29}",
        findings="stalls;cpu-smoke",
    )
    assert {name: cell for name, (cell,) in cells(runs_columns([record])).items()} == {
        "run": "7",
        "round": "1",
        "started (UTC)": "2026-11-30 04:29:24",
        "mode": "ddp",
        "devices": "2",
        "samples/s": "1235",
        "step ms median": "12.35",
        "step ms p95": "20.00",
        "data wait": "10.0 %",
        "CPU time of others": "1.2 %",
        "peak GiB": "1.50",
        "status": "ok",
        "findings": "stalls",
    }


def test_a_failed_run_has_its_error_and_no_figures() -> None:
    record = run("ddp", None, status="failed", error="x" * 300)
    table = cells(runs_columns([run("ddp"), record]))
    assert table["samples/s"] == ["100.0", "-"]
    assert table["error"] == ["-", "x" * 200 + "..."]


def test_the_session_is_a_column_if_there_are_several() -> None:
    records = [run("dp"), run("dp", session_id="s2", num_nodes=2)]
    assert cells(runs_columns(records))["session"] == ["s1", "s2"]
    assert cells(runs_columns(records))["machines"] == ["-", "2"]
    assert "session" not in cells(runs_columns(records[:1]))


def test_runs_are_in_the_order_in_which_they_were_made() -> None:
    records = [
        run("dp", position=2, sitting=2),
        run("ddp", position=1),
        run("dp", position=2),
        run("single", started_at="2026"),
    ]
    assert in_order(records) == [records[1], records[2], records[0], records[3]]


def test_of_too_many_runs_the_newest_are_shown() -> None:
    records = [run("dp", position=i) for i in range(1, MAX_RUNS + 3)]
    assert [record.position for record in shown(records)][:: MAX_RUNS - 1] == [3, MAX_RUNS + 2]
