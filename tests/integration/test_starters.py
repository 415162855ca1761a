"""torchrun, and srun's variables set by hand, start sessions: real processes on 127.0.0.1."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mgpubench.results.read import read_runs
from mgpubench.results.schema import RunRecord
from tests.pairs import free_port

SMOKE = ("-m", "mgpubench", "run", "--smoke", "--mode", "ddp")
SECONDS = 90


@contextmanager
def started(*commands: list[str], cwd: Path, env: list[dict[str, str]]) -> Iterator[list[str]]:
    """The output of commands that run at the same time, each with its variables added."""
    running = [
        subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command, variables in zip(commands, env, strict=True)
    ]
    try:
        yield [process.communicate(timeout=SECONDS)[0] for process in running]
        assert [process.returncode for process in running] == [0] * len(running)
    finally:
        for process in running:
            process.kill()
            process.wait()


def torchrun(*arguments: object) -> list[str]:
    words = (sys.executable, "-m", "torch.distributed.run", *arguments)
    return [*map(str, words), *SMOKE]


def only_run(folder: Path) -> RunRecord:
    (path,) = folder.glob("results/*/runs.csv")
    (run,) = read_runs(path).records
    assert run.status == "ok"
    return run


def test_torchrun_on_one_machine_starts_one_session(tmp_path: Path) -> None:
    command = torchrun("--nproc-per-node", 3, "--master-port", free_port())
    with started(command, cwd=tmp_path, env=[{}]) as (output,):
        pass
    run = only_run(tmp_path)
    assert (run.num_devices, run.num_nodes, run.world_size) == (3, 1, 3)
    assert output.count("torchrun's OMP_NUM_THREADS=1 is ignored") == 1


def test_threads_that_the_user_sets_stay_under_torchrun(tmp_path: Path) -> None:
    command = torchrun("--nproc-per-node", 1, "--master-port", free_port())
    with started(command, cwd=tmp_path, env=[{"OMP_NUM_THREADS": "1"}]) as (output,):
        pass
    assert "is ignored" not in output
    assert only_run(tmp_path).threads_per_rank == 1


@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_torchrun_on_two_machines_starts_one_session(tmp_path: Path, rendezvous: str) -> None:
    port = free_port()
    commands = []
    for node in (0, 1):
        place = ["--node-rank", node, "--master-addr", "127.0.0.1", "--master-port", port]
        if rendezvous == "c10d":
            place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]
        commands.append(torchrun("--nnodes", 2, "--nproc-per-node", 1, *place))
    with started(*commands, cwd=tmp_path, env=[{}, {}]):
        pass
    run = only_run(tmp_path)
    assert (run.num_devices, run.num_nodes) == (2, 2)


def task(number: int, local: int, tasks: str = "2(x2)") -> dict[str, str]:
    """The variables of one of four tasks of srun on two machines."""
    return {
        "SLURM_PROCID": str(number),
        "SLURM_LOCALID": str(local),
        "SLURM_NODEID": str(number // 2),
        "SLURM_JOB_ID": str(free_port()),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_TASKS_PER_NODE": tasks,
        "SLURM_STEP_NODELIST": "127.0.0.[1-2]",
    }


def test_four_tasks_of_srun_on_two_machines_are_one_session(tmp_path: Path) -> None:
    job = {"SLURM_JOB_ID": str(free_port())}
    env = [{**task(number, number % 2), **job} for number in range(4)]
    command = [sys.executable, *SMOKE, "--slurm"]
    with started(*[command] * 4, cwd=tmp_path, env=env) as outputs:
        pass
    run = only_run(tmp_path)
    assert (run.num_devices, run.num_nodes, run.world_size) == (4, 2, 4)
    assert outputs[1] == outputs[3] == ""  # they only waited
    assert "joined node 0 at 127.0.0.1" in outputs[2]


def refused(*arguments: str, cwd: Path, prefix: tuple[str, ...] = (), **env: str) -> str:
    done = subprocess.run(
        [*prefix, sys.executable, *SMOKE, *arguments],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 2, done.stderr
    assert not (cwd / "results").exists()
    return done.stderr


def test_a_task_that_is_bound_to_one_gpu_is_refused(tmp_path: Path) -> None:
    env = {**task(0, 0), "CUDA_VISIBLE_DEVICES": "2"}
    error = refused("--device", "cuda", cwd=tmp_path, **env)
    assert "srun shows this task only the GPUs 2 (CUDA_VISIBLE_DEVICES)" in error
    assert "srun --ntasks-per-node=1 with --gpus-per-node" in error


def test_a_task_that_is_bound_to_too_few_cores_is_refused(tmp_path: Path) -> None:
    env = task(0, 0)
    error = refused(cwd=tmp_path, prefix=("taskset", "-c", "0"), **env)
    assert "srun has bound this task to 1 core, and the 2 tasks of its machine" in error


def test_slurm_without_srun_is_refused(tmp_path: Path) -> None:
    assert "--slurm: there is no SLURM_PROCID" in refused("--slurm", cwd=tmp_path)


def test_options_that_the_starter_sets_are_refused(tmp_path: Path) -> None:
    error = refused("--gpus", "4", cwd=tmp_path, **task(0, 0))
    assert "--gpus 4, and srun has started 2 processes here" in error
    error = refused("--nnodes", "2", cwd=tmp_path, **task(0, 0))
    assert "--nnodes and srun exclude each other" in error
