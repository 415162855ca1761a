"""Two agents on one machine make sessions together: real processes, gloo over 127.0.0.1."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mgpubench.results.read import read_runs
from mgpubench.results.schema import RunRecord
from tests.pairs import SMOKE, Pair, pair_of

TINY = ("run", "--smoke", "--rounds", 1)


def session_of(folder: Path) -> Path:
    """The only session folder of node 0. Node 1 has none."""
    (session,) = (folder / "node0" / "results").iterdir()
    assert not (folder / "node1" / "results").exists()
    return session


def records_of(folder: Path) -> list[RunRecord]:
    return read_runs(session_of(folder) / "runs.csv").records


def document_of(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((session_of(folder) / "session.json").read_text())
    return document


def assert_success(pair: Pair) -> None:
    codes = pair.codes()
    assert codes == (0, 0), [node.err for node in pair.nodes]
    pair.assert_none_left()


def test_every_mode_is_measured_and_only_ddp_takes_both_nodes(tmp_path: Path) -> None:
    second = (*TINY, "--gpus", 1)
    with pair_of(tmp_path, *TINY, "--gpus", 2, second=second) as pair:
        assert_success(pair)
    runs = {record.mode: record for record in records_of(tmp_path)}
    assert {mode: run.num_devices for mode, run in runs.items()} == {
        "single": 1,
        "dp": 2,
        "ddp": 3,
    }
    assert {mode: run.num_nodes for mode, run in runs.items()} == {"single": 1, "dp": 1, "ddp": 2}
    ddp = runs["ddp"]
    assert ddp.status == "ok"
    assert ddp.world_size == 3
    assert ddp.global_batch == 24
    steps = (session_of(tmp_path) / "steps.csv").read_text().splitlines()
    ranks = {line.split(",")[1] for line in steps if line.startswith(ddp.run_id)}
    assert ranks == {"0", "1", "2"}
    assert ddp.device_names.startswith("2x ")
    assert " | 1x " in ddp.device_names
    assert len({run.machine for run in runs.values()}) == 1


def test_the_session_says_what_each_node_is(tmp_path: Path) -> None:
    variables = {"GLOO_SOCKET_IFNAME": "lo"}
    with pair_of(tmp_path, *SMOKE, seconds_env=variables) as pair:
        assert_success(pair)
    first, second = document_of(tmp_path)["nodes"]
    assert (first["node"], second["node"]) == (0, 1)
    assert first["interfaces"] == {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    assert second["interfaces"]["GLOO_SOCKET_IFNAME"] == "lo"
    assert first["machine"] == second["machine"]
    assert first["devices"] == [1]
    assert "node 1 has joined" in pair.nodes[0].err
    assert "joined node 0 at 127.0.0.1" in pair.nodes[1].err


def test_images_may_lie_elsewhere_on_another_node(
    tmp_path: Path, photos: Callable[..., Path]
) -> None:
    root = photos(cat=8, dog=8)
    other = tmp_path / "other" / "photos"
    other.parent.mkdir()
    root_copy(root, other)
    with pair_of(tmp_path, *SMOKE, "--data", root, second=(*SMOKE, "--data", other)) as pair:
        assert_success(pair)
    (run,) = records_of(tmp_path)
    assert run.dataset_samples == 16


def root_copy(source: Path, target: Path) -> None:
    import shutil

    shutil.copytree(source, target)


def test_variants_with_variables_run_on_both_nodes(tmp_path: Path) -> None:
    variants = ("--variant", "a:", "--variant", "b: --env OMP_NUM_THREADS=1")
    with pair_of(tmp_path, *SMOKE, *variants) as pair:
        assert_success(pair)
    assert {(run.variant, run.num_nodes) for run in records_of(tmp_path)} == {("a", 2), ("b", 2)}


def test_a_session_is_resumed_on_the_same_nodes(tmp_path: Path) -> None:
    with pair_of(tmp_path, *SMOKE) as pair:
        assert_success(pair)
    session = session_of(tmp_path)
    resume = ("run", "--resume", session, "--rounds", 2)
    with pair_of(tmp_path, *resume) as pair:
        assert_success(pair)
    assert [(run.round, run.sitting, run.num_nodes) for run in records_of(tmp_path)] == [
        (1, 1, 2),
        (2, 2, 2),
    ]


DIFFERENT = {
    "options": ((*SMOKE, "--steps", 7), "options.steps is None on node 0 and 7 on node 1"),
    "precision": ((*SMOKE, "--seed", 3), "options.seed is None on node 0 and 3 on node 1"),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_unequal_nodes_are_refused_by_name(tmp_path: Path, case: str) -> None:
    second, says = DIFFERENT[case]
    with pair_of(tmp_path, *SMOKE, second=second) as pair:
        assert pair.codes() == (2, 2)
        pair.assert_none_left()
    for node in pair.nodes:
        assert says in node.err
    assert not (tmp_path / "node0" / "results").exists()


# Collectives.

COMM = ("comm", "--device", "cpu", "--gpus", 1, "--rounds", 1, "--operations", "all-reduce,barrier")
SMALL = ("--smallest", "4KiB", "--largest", "64KiB", "--calls", 2, "--warmup-calls", 1)


def sizes_of(folder: Path) -> list[dict[str, str]]:
    with (session_of(folder) / "comm.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_collectives_are_exchanged_between_both_nodes(tmp_path: Path) -> None:
    with pair_of(tmp_path, *COMM, *SMALL) as pair:
        assert_success(pair)
    rows = sizes_of(tmp_path)
    assert sorted((row["operation"], row["size_bytes"]) for row in rows) == [
        *(("all-reduce", size) for size in ("16384", "4096", "65536")),
        ("barrier", ""),
    ]
    for row in rows:
        assert (row["status"], row["num_devices"], row["num_nodes"]) == ("ok", "2", "2")
        assert float(row["time_median_s"]) > 0
        assert " | 1x " in row["device_names"]
    assert len(document_of(tmp_path)["nodes"]) == 2
    assert "2 machines" in pair.nodes[0].out


def test_a_wrong_result_on_another_node_is_named(tmp_path: Path) -> None:
    """And the other run goes on."""
    path = {"PYTHONPATH": str(Path(__file__).parents[2])}
    agent = (sys.executable, "-m", "tests.damaged_agent")
    with pair_of(tmp_path, *COMM, *SMALL, env=path, seconds_prefix=agent) as pair:
        codes = pair.codes()
    assert codes == (1, 1), [node.err for node in pair.nodes]
    pair.assert_none_left()
    failed = [row for row in sizes_of(tmp_path) if row["status"] == "failed"]
    (error,) = [row["error"] for row in failed]
    assert "all-reduce x2 on 2 machines" in error
    assert "rank 1 on node 1 has a wrong result: " in error
    assert [row["status"] for row in sizes_of(tmp_path) if row["operation"] == "barrier"] == ["ok"]


def test_collectives_and_runs_are_not_one_session(tmp_path: Path) -> None:
    with pair_of(tmp_path, *COMM, second=SMOKE) as pair:
        assert pair.codes() == (2, 2)
    assert "options.command is 'comm' on node 0 and None on node 1" in pair.nodes[0].err
