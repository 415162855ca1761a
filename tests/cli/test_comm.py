"""`mgpubench comm` on the CPU, over gloo."""

from __future__ import annotations

import csv
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from mgpubench.cli import cli
from mgpubench.config.comm_request import OPERATIONS
from tests.conftest import Here
from tests.processes import Command, wait_until

Run = Callable[..., Here]

ONE = ("comm", "--device", "cpu", "--rounds", 1)
SMALL = ("--smallest", "4KiB", "--largest", "4KiB")


def folder_of(result: Here) -> Path:
    return Path(result.err.splitlines()[-1].removeprefix("results: "))


def rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "comm.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_every_operation_on_three_ranks(run_here: Run, tmp_path: Path) -> None:
    sizes = ("--smallest", 100, "--largest", "64K", "--factor", 16, "--calls", 3)
    result = run_here(*ONE, "--gpus", 3, *sizes, cwd=tmp_path)
    assert result.exit_code == 0, result.err
    folder = tmp_path / folder_of(result)
    found = rows(folder)
    assert {row["status"] for row in found} == {"ok"}
    sizes_of = {
        operation: sorted(
            int(row["size_bytes"] or 0) for row in found if row["operation"] == operation
        )
        for operation in OPERATIONS
    }
    assert sizes_of["barrier"] == [0]
    assert sizes_of["all-reduce"] == [100, 1600, 25600]
    assert sizes_of["all-gather"] == [96, 1596, 25596]
    for row in found:
        time_s = float(row["time_median_s"])
        assert 0 < float(row["time_min_s"]) <= time_s <= float(row["time_max_s"])
        assert (row["calls"], row["blocks"], row["backend"]) == ("15", "5", "gloo")
        if row["operation"] == "barrier":
            assert row["bus_bandwidth_bytes_per_s"] == row["size_bytes"] == ""
        else:
            bandwidth = float(row["algorithm_bandwidth_bytes_per_s"])
            assert bandwidth == pytest.approx(int(row["size_bytes"]) / time_s)
    assert all(f"\n{operation} " in result.out for operation in OPERATIONS)
    document = json.loads((folder / "session.json").read_text())
    assert document["command"] == "comm"
    assert len(document["plan"]) == len(OPERATIONS)
    for again in (("run", "--resume", folder), ("train", "--resume", folder)):
        refused = CliRunner().invoke(cli, [*map(str, again)])
        assert refused.exit_code == 2
        assert "is a session of mgpubench comm, which cannot be resumed" in refused.stderr
    refused = CliRunner().invoke(cli, ["compare", str(folder)])
    assert refused.exit_code == 2
    assert "it has collectives" in refused.stderr.lower()


def test_a_damaged_element_on_one_rank_is_named(
    run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the other run goes on."""
    target = "tests.damaged:measure_damaged"
    monkeypatch.setattr("mgpubench.session.workers.MEASURE_COLLECTIVES", target)
    calls = ("--calls", 2, "--warmup-calls", 1)
    operations = ("--operations", "all-reduce,barrier")
    result = run_here(*ONE, *operations, *SMALL, *calls, cwd=tmp_path)
    assert result.exit_code == 1
    message = (
        "all-reduce x2, 4 KiB: rank 1 has a wrong result: 126 instead of 125 in element 5 of 1024 "
        "(1 wrong in call 4)"
    )
    assert f"error: {message}" in result.err
    assert "error: 1 of 2 runs failed" in result.err
    by_operation = {row["operation"]: row for row in rows(tmp_path / folder_of(result))}
    assert by_operation["barrier"]["status"] == "ok"
    bad = by_operation["all-reduce"]
    assert (bad["status"], bad["error"], bad["size_bytes"]) == ("failed", message, "4096")
    assert bad["time_median_s"] == bad["bus_bandwidth_bytes_per_s"] == ""


def test_the_gradient_buckets_of_a_model(run_here: Run, tmp_path: Path) -> None:
    result = run_here(
        *ONE, "--model", "tiny-cnn", "--operations", "all-reduce", "--calls", 1, cwd=tmp_path
    )
    assert result.exit_code == 0, result.err
    found = rows(tmp_path / folder_of(result))
    assert {(row["model"], row["buckets"]) for row in found} == {("tiny-cnn", "1")}
    assert "a step of ddp on 2 devices all-reduces the gradients of tiny-cnn, " in result.out


def test_an_operation_that_the_backend_lacks_is_named(
    run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mgpubench.session.workers.FIND_LACKING", "tests.damaged:find_lacking")
    lacks = "this torch's gloo does not have it (ProcessGroupGloo does not support gather)"
    refused = run_here(*ONE, "--operations", "barrier,gather", *SMALL, cwd=tmp_path)
    assert refused.exit_code == 2
    assert f"error: --operations gather: {lacks}" in refused.err
    assert not (tmp_path / "results").exists()


def test_ctrl_c_keeps_the_rows_that_are_finished(
    start: Callable[..., Command], tmp_path: Path
) -> None:
    command = start(
        *("comm", "--device", "cpu", "--operations", "barrier,all-reduce", "--rounds", 2000),
        *("--smallest", "4K", "--largest", "1M"),
    )

    def finished() -> list[Path]:
        return [path for path in tmp_path.glob("results/*/comm.csv") if len(rows(path.parent)) > 2]

    wait_until(finished, 60, "three rows")
    command.popen.send_signal(signal.SIGINT)
    assert command.wait(15) == 130
    found = rows(finished()[0].parent)
    assert {row["status"] for row in found} <= {"ok", "interrupted"}
    assert sum(row["status"] == "ok" for row in found) > 2
    assert "finished rows kept in results/" in command.err
    command.assert_none_left()


def invoke(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["comm", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_a_dry_run_prints_the_plan() -> None:
    code, out, err = invoke("--gpus", 8, "--dry-run", "--rounds", 1, "--largest", "16K")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "10 runs over nccl: 5 timed blocks of each size"
    assert "4 KiB 16 KiB" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--operations", "all-reduce,sum"), "'sum' is not one of broadcast, scatter, gather,"),
        (("--smallest", "4X"), "'4X' is not a size such as 4096, 4KiB or 16M."),
        (("--gpus", "1"), "error: --gpus 1: on one device there is nobody to exchange data with"),
        (("--rounds", "0"), "error: --rounds is 0, and must be at least 1"),
        (("--plot", "x.doc"), "error: --plot x.doc: the name must end with .svg, .png or .pdf"),
        (("--resume", "x"), "No such option"),
        (("--nnodes", "2"), "error: --node-rank, --rdzv-endpoint missing for several machines"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], message: str) -> None:
    code, out, err = invoke(*arguments)
    assert (code, out) == (2, "")
    assert message in err
