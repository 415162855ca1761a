"""Faults of a session on two machines, here two agents on one."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.conftest import END_S, rows
from tests.faults.test_interruption import cpu_seconds
from tests.hurtmodels import FAULT_TIME
from tests.pairs import SMOKE, Pair, node_options, pair_of
from tests.processes import Command, Process, mgpubench, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

Report = Callable[..., str]

LOSS_S = 15.0
"""From the loss of a machine to the end of every other one."""

TINY = (
    *("run", "--device", "cpu", "--mode", "ddp", "--gpus", 2, "--model", "tiny-cnn"),
    *("--image-size", 64, "-b", 4, "--warmup-steps", 1, "--rounds", 1, "--out", "out"),
)
LONG = (*TINY, "--steps", 100_000)
LOST = r"error: lost node 1: no sign of life for 10 s"
ROW = "finished runs; a row says why this one failed"
NO_ROW = "nothing: no run had begun"
NOTHING_HERE = "nothing: node 0 writes the results"


def await_training(pair: Pair) -> None:
    """Wait until all four ranks train. The first process below a fork server is the link."""

    def training() -> bool:
        assert all(node.popen.poll() is None for node in pair.nodes), [n.err for n in pair.nodes]
        ranks = [node.ranks() for node in pair.nodes]
        return all(
            len(found) == 3 and all(cpu_seconds(rank) > 0.8 for rank in found[1:])
            for found in ranks
        )

    wait_until(training, 90, "ranks that train on both nodes")


def rank_of(node: Command) -> Process:
    """The last rank of a node."""
    return node.ranks()[-1]


def link_of(node: Command) -> Process:
    """The process that talks with the store."""
    return node.ranks()[0]


def kill_rank(node: int) -> Callable[[Pair], None]:
    return lambda pair: os.kill(rank_of(pair.nodes[node]).pid, signal.SIGKILL)


def signal_agent(node: int, signum: signal.Signals) -> Callable[[Pair], None]:
    return lambda pair: pair.nodes[node].popen.send_signal(signum)


def signal_link(node: int, signum: signal.Signals) -> Callable[[Pair], None]:
    return lambda pair: os.kill(link_of(pair.nodes[node]).pid, signum)


@dataclass(frozen=True)
class Seen:
    """What a node should say, and its exit code."""

    says: str | None
    code: int = 1


@dataclass(frozen=True)
class NodeFault:
    """What is done to a pair that trains, and what both should say."""

    name: str
    hurt: Callable[[Pair], None]
    first: Seen
    second: Seen
    statuses: tuple[str, ...] = ("failed",)
    """Of the rows; none if node 0 could not write any."""


RUN_FAILED = Seen("error: node 0 has ended the session: 1 of 1 run failed")
FAULTS = (
    NodeFault(
        "a rank on node 1 is killed",
        kill_rank(1),
        Seen(r"error: ddp x4 on 2 machines: node 1: rank 3 \(pid \d+\) was killed by signal 9"),
        RUN_FAILED,
    ),
    NodeFault(
        "a rank on node 0 is killed",
        kill_rank(0),
        Seen(r"error: ddp x4 on 2 machines: node 0: rank 1 \(pid \d+\) was killed by signal 9"),
        RUN_FAILED,
    ),
    NodeFault(
        "the agent of node 1 is killed",
        signal_agent(1, signal.SIGKILL),
        Seen(LOST),
        Seen(None, 137),
    ),
    NodeFault(
        "the agent of node 0 is killed",
        signal_agent(0, signal.SIGKILL),
        Seen(None, 137),
        Seen(r"error: lost node 0 at 127.0.0.1:\d+"),
        statuses=(),
    ),
    NodeFault(
        "the link process of node 1 is killed",
        signal_link(1, signal.SIGKILL),
        Seen(LOST),
        Seen("error: the process that talks with the other machines ended"),
    ),
    NodeFault(
        "the link process of node 0 is killed",
        signal_link(0, signal.SIGKILL),
        Seen("error: the process that talks with the other machines ended"),
        Seen(r"error: lost node 0 at 127.0.0.1:\d+"),
    ),
    NodeFault(
        "the link process of node 1 is stopped",
        signal_link(1, signal.SIGSTOP),
        Seen(LOST),
        Seen(r"error: lost node 0"),
    ),
    NodeFault(
        "Ctrl-C (SIGINT) on node 0",
        signal_agent(0, signal.SIGINT),
        Seen("error: interrupted by SIGINT", 130),
        Seen("error: node 0 has ended the session: interrupted by SIGINT"),
        statuses=("interrupted",),
    ),
    NodeFault(
        "Ctrl-C (SIGINT) on node 1",
        signal_agent(1, signal.SIGINT),
        Seen("error: node 1 has ended the session: interrupted by SIGINT"),
        Seen("error: interrupted by SIGINT", 130),
        statuses=("interrupted",),
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_both_nodes_end_with_the_right_cause(
    fault: NodeFault, tmp_path: Path, report: Report
) -> None:
    with pair_of(tmp_path, *LONG) as pair:
        await_training(pair)
        hurt_s = time.monotonic()
        fault.hurt(pair)
        ends = [wait_for(node, hurt_s) for node in pair.nodes]
        for number, seen in enumerate((fault.first, fault.second)):
            report(
                f"{fault.name}: node {number}",
                pair.nodes[number],
                seen.says,
                code=seen.code,
                kept=NOTHING_HERE if number else ROW,
                since_s=hurt_s,
            )
        pair.assert_none_left()
    assert max(ends) < LOSS_S
    assert [row["status"] for row in rows(tmp_path / "node0")] == list(fault.statuses)


def wait_for(node: Command, since_s: float) -> float:
    """Seconds to the end of a node."""
    node.wait(END_S)
    return node.ended_s - since_s


def test_a_stopped_agent_is_lost_and_ends_when_it_goes_on(tmp_path: Path, report: Report) -> None:
    with pair_of(tmp_path, *LONG) as pair:
        await_training(pair)
        first, second = pair.nodes
        hurt_s = time.monotonic()
        second.popen.send_signal(signal.SIGSTOP)
        assert wait_for(first, hurt_s) < LOSS_S
        fault = "the agent of node 1 is stopped (SIGSTOP)"
        report(f"{fault}: node 0", first, LOST, code=1, kept=ROW, since_s=hurt_s)
        went_on_s = time.monotonic()
        second.popen.send_signal(signal.SIGCONT)
        fault = "the agent of node 1 goes on after that (SIGCONT): node 1"
        report(fault, second, "error: ", code=1, kept=NOTHING_HERE, since_s=went_on_s)
        pair.assert_none_left()
    assert [row["status"] for row in rows(tmp_path / "node0")] == ["failed"]


MODELS = {
    "raises_on_rank_1": ("an error on node 1", "node 1: rank 1: ValueError: wrong on rank 1"),
    "exits_silently": (
        "a rank on node 1 exits with code 0",
        r"node 1: rank 1 \(pid \d+\) exited with code 0",
    ),
    "stops": (
        "a rank on node 1 is stopped (SIGSTOP), --timeout 15",
        "ddp x2 on 2 machines did not end within --timeout 15 s",
    ),
}


@pytest.mark.parametrize("model", MODELS)
def test_a_fault_in_a_rank_of_node_1_is_the_cause(
    model: str, tmp_path: Path, report: Report
) -> None:
    name, says = MODELS[model]
    FAULT_TIME.unlink(missing_ok=True)
    options = ("--gpus", 1, "--model", f"tests.hurtmodels:{model}", "--steps", 20, "--timeout", 15)
    pythonpath = {"PYTHONPATH": str(Path(__file__).parents[2])}
    with pair_of(tmp_path, *TINY, *options, env=pythonpath) as pair:
        assert pair.codes() == (1, 1), [node.err for node in pair.nodes]
        since_s = float(FAULT_TIME.read_text())
        first, second = pair.nodes
        report(f"{name}: node 0", first, f"error: .*{says}", code=1, kept=ROW, since_s=since_s)
        ended = str(RUN_FAILED.says)
        report(f"{name}: node 1", second, ended, code=1, kept=NOTHING_HERE, since_s=since_s)
        pair.assert_none_left()
    (row,) = rows(tmp_path / "node0")
    assert row["status"] == "failed"


def test_finished_runs_are_kept_when_a_node_is_lost(tmp_path: Path) -> None:
    options = ("--rounds", 1000, "--steps", 5)
    with pair_of(tmp_path, *TINY, *options) as pair:
        wait_until(lambda: len(rows(tmp_path / "node0")) >= 2, 90, "two rows")
        pair.nodes[1].popen.kill()
        assert pair.nodes[0].wait(END_S) == 1
        pair.nodes[1].wait()
        pair.assert_none_left()
    statuses = [row["status"] for row in rows(tmp_path / "node0")]
    assert statuses[:2] == ["ok", "ok"]
    assert statuses[-1] == "failed"
    assert "make the rest with: mgpubench run --resume" in pair.nodes[0].err


def test_a_node_that_never_comes_is_named(tmp_path: Path, report: Report) -> None:
    port = unused_port()
    options = (*SMOKE, *node_options(0, port, num_nodes=3), "--join-timeout", 3)
    command = mgpubench(*options, cwd=tmp_path)
    says = "error: node 1, node 2 of 3 did not join within --join-timeout 3 s"
    report("two nodes never come: node 0", command, says, code=1, kept=NO_ROW)


def test_a_node_0_that_never_comes_is_named(tmp_path: Path, report: Report) -> None:
    options = (*SMOKE, *node_options(1, unused_port()), "--join-timeout", 3)
    command = mgpubench(*options, cwd=tmp_path)
    says = r"error: no connection to node 0 at 127.0.0.1:\d+"
    report("node 0 never comes: node 1", command, says, code=1, kept=NOTHING_HERE)


def test_ctrl_c_while_waiting_for_others_ends_at_once(tmp_path: Path, report: Report) -> None:
    command = Command(*SMOKE, *node_options(0, unused_port()), cwd=tmp_path)
    try:
        wait_until(lambda: "waiting for" in command.err and command.ranks(), 60, "waiting")
        hurt_s = time.monotonic()
        command.popen.send_signal(signal.SIGINT)
        says = "error: interrupted by SIGINT"
        fault = "Ctrl-C (SIGINT) while node 0 waits for the others"
        report(fault, command, says, code=130, kept=NO_ROW, since_s=hurt_s)
        command.assert_none_left()
    finally:
        command.kill()


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


REFUSED = {
    "the port is taken": (None, "error: --rdzv-endpoint .* cannot be opened on node 0: Address"),
    "the name of node 0 does not resolve": (
        "no-such-host.invalid",
        "error: --rdzv-endpoint no-such-host.invalid.* does not resolve",
    ),
    "the name of node 0 leads it only to itself": (
        "localhost",
        "error: --rdzv-endpoint localhost.*: on this machine localhost is ",
    ),
    "the endpoint is not an address of node 0": (
        "192.0.2.1",
        "error: --rdzv-endpoint 192.0.2.1.* cannot be opened on node 0: Cannot assign",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_an_impossible_endpoint_is_refused(fault: str, tmp_path: Path, report: Report) -> None:
    host, says = REFUSED[fault]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        endpoint = f"{host or '127.0.0.1'}:{port}"
        options = ("--nnodes", 2, "--node-rank", 0, "--rdzv-endpoint", endpoint)
        command = mgpubench(*SMOKE, *options, cwd=tmp_path)
    report(f"{fault}: node 0", command, says, code=2, kept=NO_ROW)


@pytest.fixture
def other_version(tmp_path: Path) -> dict[str, str]:
    """Variables with which another version is started."""
    folder = tmp_path / "other"
    folder.mkdir()
    # Python imports it at its start.
    (folder / "sitecustomize.py").write_text("import mgpubench\nmgpubench.__version__ = '9.9'\n")
    root = Path(__file__).parents[2]
    return {"PYTHONPATH": f"{folder}:{root}"}


def test_another_version_is_refused_everywhere(
    tmp_path: Path, report: Report, other_version: dict[str, str]
) -> None:
    with pair_of(tmp_path, *SMOKE, seconds_env=other_version) as pair:
        assert pair.codes() == (2, 2), [node.err for node in pair.nodes]
        what = "the machines are not equal: mgpubench.version is .* on node 0 and '9.9' on node 1"
        fault = "node 1 has another version"
        report(f"{fault}: node 0", pair.nodes[0], f"error: {what}", code=2, kept=NO_ROW)
        says = f"error: node 0 has ended the session: {what}"
        report(f"{fault}: node 1", pair.nodes[1], says, code=2, kept=NOTHING_HERE)
        pair.assert_none_left()


def test_other_images_are_refused_everywhere(
    tmp_path: Path, report: Report, photos: Callable[..., Path]
) -> None:
    root = photos(cat=8, dog=8)
    other = tmp_path / "other" / "photos"
    (other / "cat").mkdir(parents=True)
    (other / "dog").mkdir()
    for image in root.rglob("*.jpg"):
        (other / image.parent.name / f"x{image.name}").write_bytes(image.read_bytes())
    with pair_of(tmp_path, *SMOKE, "--data", root, second=(*SMOKE, "--data", other)) as pair:
        assert pair.codes() == (2, 2), [node.err for node in pair.nodes]
        what = r"the machines are not equal: datasets\[0\].digest is "
        fault = "node 1 has other images"
        report(f"{fault}: node 0", pair.nodes[0], f"error: {what}", code=2, kept=NO_ROW)
        says = f"error: node 0 has ended the session: {what}"
        report(f"{fault}: node 1", pair.nodes[1], says, code=2, kept=NOTHING_HERE)
        pair.assert_none_left()


def test_a_second_node_with_the_same_rank_is_refused(tmp_path: Path, report: Report) -> None:
    with pair_of(tmp_path, *LONG) as pair:
        wait_until(lambda: "joined" in pair.nodes[1].err, 60, "node 1")
        port = pair.nodes[0].popen.args[-1].rpartition(":")[2]  # type: ignore[index, union-attr]
        place = tmp_path / "intruder"
        place.mkdir()
        command = mgpubench(*LONG, *node_options(1, int(port)), cwd=place)
        says = "error: no connection to node 0 .*: another machine has joined with --node-rank 1"
        fault = "another machine joins with the same --node-rank: it"
        report(fault, command, says, code=1, kept=NOTHING_HERE)
        await_training(pair)
