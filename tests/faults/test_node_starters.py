"""Several machines: trainings, killed starters, clocks apart, and a link that goes down."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mgpubench.results.checkpoint_files import CHECKPOINTS, find_checkpoints
from tests.conftest import Here
from tests.faults.conftest import END_S, rows
from tests.faults.test_nodes import KEPT, LOSS_S, NOTHING_HERE, ROW, TINY, Report, wait_for
from tests.hurtmodels import SLOW_S
from tests.orphans import Orphan, adopting, assert_ended, ending, kill_starter
from tests.pairs import Pair, free_port, pair_of
from tests.processes import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
RUNS = (*TINY, "--gpus", 1, "--steps", 5, "--rounds", 1000)
TRAIN = (
    *("train", "--data", "photos", "--device", "cpu", "--model", "mlp", "--image-size", 32),
    *("--global-batch", 6, "--workers-per-gpu", 0, "--no-augment", "--out", "out"),
)
NODE_1 = "node 1: "
"""What `scripts/two-hosts` puts before the lines of the second host."""
INTERRUPTED = "error: interrupted by SIGTERM"
LAST = "epochs and checkpoints before; `--resume` goes on"


def epochs_of(place: Path) -> list[dict[str, str]]:
    found = []
    for path in place.glob("out/*/epochs.csv"):
        with path.open(newline="") as file:
            found += list(csv.DictReader(file))
    return found


def last_checkpoint(place: Path) -> int:
    """The epoch of the last checkpoint; 0 without one."""
    folders = place.glob(f"out/*/{CHECKPOINTS}")
    return max((epoch for folder in folders for epoch in find_checkpoints(folder)), default=0)


def assert_codes(pair: Pair, *codes: int) -> None:
    assert pair.codes() == codes, [node.err for node in pair.nodes]
    pair.assert_none_left()


def test_ctrl_c_on_node_1_ends_a_training_that_keeps_its_epochs(
    tmp_path: Path, photos: Callable[..., Path], report: Report
) -> None:
    root = photos(cat=9, dog=11)
    for node in ("node0", "node1"):
        shutil.copytree(root, tmp_path / node / "photos")
    place = tmp_path / "node0"
    with pair_of(tmp_path, *TRAIN, "--gpus", 1, "--epochs", 100_000) as pair:
        wait_until(lambda: len(epochs_of(place)) >= 2, 90, "two epochs")
        before, hurt_s = last_checkpoint(place), time.monotonic()
        pair.nodes[1].popen.send_signal(signal.SIGINT)
        assert max(wait_for(node, hurt_s) for node in pair.nodes) < LOSS_S
        says = (
            "error: node 1 has ended the session: interrupted by SIGINT",
            "error: interrupted by SIGINT",
        )
        for number, code in enumerate((1, 130)):
            report(
                f"a training: Ctrl-C (SIGINT) on node 1: node {number}",
                pair.nodes[number],
                says[number],
                code=code,
                kept=NOTHING_HERE if number else LAST,
                since_s=hurt_s,
            )
        pair.assert_none_left()
    assert "go on from the last checkpoint with: mgpubench train --resume" in pair.nodes[0].err
    done = last_checkpoint(place)
    assert done >= before >= 1
    assert [int(row["epoch"]) for row in epochs_of(place)][:done] == list(range(1, done + 1))
    assert not (tmp_path / "node1" / "out").exists()
    again = ("train", "--resume", "last", "--out", "out", "--epochs", done)
    with pair_of(tmp_path, *again) as pair:
        assert_codes(pair, 0, 0)
    assert f"{done} epochs are done" in pair.nodes[0].err


def test_a_training_ends_with_torchrun(
    tmp_path: Path, photos: Callable[..., Path], report: Report
) -> None:
    photos(cat=9, dog=11)
    torchrun = ("torch.distributed.run", "--nproc-per-node", 2, "--master-port", free_port())
    command = ("-m", *torchrun, "-m", "mgpubench", *TRAIN, "--epochs", 100_000)
    err = tmp_path / "stderr.txt"
    with adopting(), err.open("wb") as file:
        starter = subprocess.Popen(
            [sys.executable, *map(str, command)], cwd=tmp_path, stdout=file, stderr=file
        )
        with ending(starter):
            wait_until(lambda: len(epochs_of(tmp_path)) >= 2, 90, "two epochs")
            hurt_s = time.monotonic()
            (agent,), family = kill_starter(starter)
            fault = "a training: torchrun is killed (SIGKILL)"
            orphan = Orphan(agent, err)
            report(fault, orphan, INTERRUPTED, code=143, kept=LAST, since_s=hurt_s)
            assert_ended(family)
    assert {row["mode"] for row in epochs_of(tmp_path)} == {"ddp"}
    assert {row["num_devices"] for row in epochs_of(tmp_path)} == {"2"}
    assert last_checkpoint(tmp_path) >= 1


SRUN = """#!{python}
import os, subprocess, sys
assert sys.argv[1] == "--cpus-per-task=" + os.environ["SLURM_CPUS_PER_TASK"]
tasks = []
for node in range(2):
    step = {{
        "PROCID": node, "LOCALID": 0, "NODEID": node, "STEP_ID": 0, "STEP_NUM_TASKS": 2,
        "STEP_NUM_NODES": 2, "STEP_TASKS_PER_NODE": "1(x2)", "STEP_NODELIST": "127.0.0.[1-2]",
    }}
    variables = {{"SLURM_" + name: str(value) for name, value in step.items()}}
    with open(f"stderr-{{node}}.txt", "wb") as err:
        tasks.append(subprocess.Popen(sys.argv[2:], stderr=err, env={{**os.environ, **variables}}))
sys.exit(max(task.wait() for task in tasks))
"""
"""What srun does with one task on each of two machines."""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_the_script_for_slurm_runs_as_it_stands_and_ends_with_srun(
    tmp_path: Path, report: Report
) -> None:
    script = ROOT / "scripts" / "slurm.sbatch"
    programs = tmp_path / "bin"
    write(programs / "srun", SRUN.format(python=sys.executable))
    write(programs / "mgpubench", f'#!/bin/sh\nexec {sys.executable} -m mgpubench "$@"\n')
    write(tmp_path / ".venv" / "bin" / "activate", "")
    variables = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SLURM_JOB_ID": str(free_port()),
        "SLURM_CPUS_PER_TASK": "1",
    }
    # Bash becomes srun, and so this process's child.
    text = script.read_text().replace("\nsrun ", "\nexec srun ")
    with adopting():
        starter = subprocess.Popen(
            ["bash", "-c", text, str(script), *map(str, RUNS)],
            cwd=tmp_path,
            env={**os.environ, **variables},
        )
        with ending(starter):
            wait_until(lambda: len(rows(tmp_path)) >= 2, 90, "two rows")
            hurt_s = time.monotonic()
            agents, family = kill_starter(starter)
            assert len(agents) == 2
            for number, agent in enumerate(agents):
                fault = f"srun is killed (SIGKILL): node {number}"
                kept = NOTHING_HERE if number else KEPT[("interrupted",)]
                orphan = Orphan(agent, tmp_path / f"stderr-{number}.txt")
                report(fault, orphan, INTERRUPTED, code=143, kept=kept, since_s=hurt_s)
            assert_ended(family)
    statuses = [row["status"] for row in rows(tmp_path)]
    assert statuses[:2] == ["ok", "ok"]
    assert {row["num_nodes"] for row in rows(tmp_path)} == {"2"}


APART = """import os, time
apart_s = int(os.environ.get("APART_S", "0"))
for name in ("time", "monotonic", "perf_counter"):
    seconds, ns = getattr(time, name), getattr(time, name + "_ns")
    setattr(time, name, lambda seconds=seconds: seconds() + apart_s)
    setattr(time, name + "_ns", lambda ns=ns: ns() + apart_s * 10**9)
"""
"""All clocks of Python's, also those that have another zero on each machine anyway."""


def test_a_slow_node_whose_clocks_are_an_hour_apart_is_a_node_like_others(
    tmp_path: Path, report: Report
) -> None:
    # Python imports it at its start. On both: the code of a model may call a clock.
    write(tmp_path / "clocks" / "sitecustomize.py", APART)
    model = ("--gpus", 1, "--model", "tests.hurtmodels:slow_on_rank_1", "--steps", 3)
    env = {"PYTHONPATH": f"{tmp_path / 'clocks'}:{ROOT}"}
    with pair_of(tmp_path, *TINY, *model, env=env, seconds_env={"APART_S": "3600"}) as pair:
        assert_codes(pair, 0, 0)
        fault = "the clocks of node 1 are an hour apart, and it is slow: node"
        for number, says in enumerate(("results: ", "done: node 0 has the results")):
            kept = NOTHING_HERE if number else "everything"
            report(f"{fault} {number}", pair.nodes[number], says, code=0, kept=kept)
    (row,) = rows(tmp_path / "node0")
    assert row["status"] == "ok"
    assert 3 * SLOW_S <= float(row["window_s"]) < 60


def why_no_hosts() -> str:
    """Why there can be no second host; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "ip is not installed"
    name = f"mgpubench-test-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return "" if made.returncode == 0 else f"no network namespaces: {made.stderr.strip()}"


def test_a_link_that_goes_down_is_a_lost_node(tmp_path: Path, report: Report) -> None:
    """Two hosts in one machine, as `scripts/two-hosts` makes them."""
    if reason := why_no_hosts():
        pytest.skip(reason)
    script = (ROOT / "scripts" / "two-hosts", "--rate", "200mbit", "--link", "link", "--", *RUNS)
    err = tmp_path / "stderr.txt"
    with err.open("wb") as file:
        hosts = subprocess.Popen(
            [*map(str, script)],
            cwd=tmp_path,
            env={**os.environ, "MGPUBENCH_PYTHON": sys.executable},
            stderr=file,
        )
    try:
        wait_until(lambda: len(rows(tmp_path)) >= 2, 90, "two rows")
        host, interface = (tmp_path / "link").read_text().split()[:2]
        hurt_s = time.monotonic()
        subprocess.run(["ip", "-n", host, "link", "set", interface, "down"], check=True)
        code = hosts.wait(LOSS_S)
        ended_s = time.monotonic()
    finally:
        hosts.send_signal(signal.SIGINT)
        hosts.wait(END_S)
    lines = err.read_text().splitlines(keepends=True)
    of_node_1 = [line.removeprefix(NODE_1) for line in lines if line.startswith(NODE_1)]
    of_node_0 = [line for line in lines if not line.startswith(NODE_1)]
    for number, (text, says) in enumerate(
        ((of_node_0, "error: lost node 1: no sign"), (of_node_1, "error: lost node 0"))
    ):
        # Of both codes the script has one.
        node = Here(code, "", "".join(text), hurt_s, ended_s)
        fault = f"the link between two hosts goes down: node {number}"
        kept = NOTHING_HERE if number else ROW
        report(fault, node, says, code=1, kept=kept, since_s=hurt_s)
    statuses = [row["status"] for row in rows(tmp_path)]
    assert statuses[:2] == ["ok", "ok"]
    assert statuses[-1] == "failed"
