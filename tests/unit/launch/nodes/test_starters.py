"""What torchrun and srun say in their variables."""

from __future__ import annotations

import os

import pytest

from mgpubench.errors import RequestRefused
from mgpubench.launch.nodes.starters import (
    environment_of,
    find_starter,
    first_host,
    own_omp_num_threads,
    tasks_per_node,
)

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "1",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "RANK": "5",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "WORLD_SIZE": "8",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29501",
}
SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_JOB_ID": "12345",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_JOB_NODELIST": "gpu[01-08]",
}


def test_torchrun_says_which_machine_and_process_this_is() -> None:
    started = find_starter(TORCHRUN, parent_pid=77)
    assert started is not None
    assert (started.by, started.local_rank, started.num_local) == ("torchrun", 1, 4)
    assert started.is_per_gpu
    nodes = started.nodes(join_timeout_s=9.0)
    assert nodes is not None
    assert (nodes.num_nodes, nodes.node_rank) == (2, 1)
    assert (nodes.endpoint, nodes.join_timeout_s) == ("10.0.0.1:29501", 9.0)


def test_torchruns_own_store_is_used_if_it_has_one() -> None:
    started = find_starter(TORCHRUN, 77)
    assert started is not None
    assert started.store == "mgpubench/1/"
    started = find_starter({**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "False"}, 77)
    assert started is not None
    assert started.store == ""


def test_processes_of_one_machine_have_one_key_and_others_another() -> None:
    keys = [
        find_starter({**TORCHRUN, **changes}, parent).key  # type: ignore[union-attr]
        for changes, parent in (
            ({}, 77),
            ({"LOCAL_RANK": "0"}, 77),
            ({}, 78),
            ({"TORCHELASTIC_RESTART_COUNT": "2"}, 77),
        )
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_torchrun_on_one_machine_makes_a_usual_session() -> None:
    started = find_starter({**TORCHRUN, "GROUP_WORLD_SIZE": "1", "GROUP_RANK": "0"}, 77)
    assert started is not None
    assert started.nodes(join_timeout_s=9.0) is None


def test_srun_says_which_machine_and_task_this_is() -> None:
    started = find_starter(SRUN, 1)
    assert started is not None
    assert (started.by, started.local_rank, started.num_local) == ("srun", 1, 2)
    assert started.is_per_gpu
    nodes = started.nodes(join_timeout_s=9.0)
    assert nodes is not None
    # The list of the step comes before that of the job.
    assert (nodes.num_nodes, nodes.node_rank, nodes.host) == (2, 1, "gpu07")
    assert nodes.port == 20_000 + 12345 % 10_000 + 2
    assert nodes.store == ""


def test_one_task_on_each_machine_stands_for_all_of_its_gpus() -> None:
    started = find_starter(
        {**SRUN, "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, 1
    )
    assert started is not None
    assert not started.is_per_gpu
    assert started.num_local == 1


def test_without_a_list_of_the_step_that_of_the_job_is_taken() -> None:
    environ = {name: value for name, value in SRUN.items() if name != "SLURM_STEP_NODELIST"}
    started = find_starter(environ, 1)
    assert started is not None
    assert started.host == "gpu01"


def test_without_any_list_it_is_refused_and_never_this_machine() -> None:
    environ = {name: value for name, value in SRUN.items() if "NODELIST" not in name}
    with pytest.raises(RequestRefused, match="SLURM_STEP_NODELIST nor SLURM_JOB_NODELIST"):
        find_starter(environ, 1)


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_mpirun_is_refused_by_name(name: str) -> None:
    with pytest.raises(RequestRefused, match="started by mpirun as one of 4 processes"):
        find_starter({name: "4"}, 1)


def test_srun_may_speak_pmi() -> None:
    started = find_starter({**SRUN, "PMI_SIZE": "4"}, 1)
    assert started is not None
    assert started.by == "srun"


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "192.0.2.1"},
        {"TORCHELASTIC_USE_AGENT_STORE": "True"},
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
        {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "8"},  # inside sbatch, without srun
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "many"},
        {"PMI_SIZE": "1"},
        {"OMPI_COMM_WORLD_SIZE": "1"},
    ],
    ids=str,
)
def test_other_environments_have_no_starter(environ: dict[str, str]) -> None:
    assert find_starter(environ, 1) is None


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("node[1-3]", "node1"),
        ("node[01-03,7],gpu5", "node01"),
        ("node[7,9-12]", "node7"),
        ("rack[1-2]n[3-4]", "rack1n3"),
        ("gpu5,node[1-3]", "gpu5"),
        ("a-b[08-10].example.org", "a-b08.example.org"),
    ],
)
def test_the_first_host_of_a_list_of_slurm(hosts: str, first: str) -> None:
    assert first_host(hosts) == first


@pytest.mark.parametrize(
    ("text", "counts"),
    [("2", [2]), ("2(x3),1", [2, 2, 2, 1]), ("4,2(x2)", [4, 2, 2]), ("", [])],
)
def test_numbers_of_tasks_of_slurm(text: str, counts: list[int]) -> None:
    assert tasks_per_node(text) == counts


@pytest.mark.parametrize(
    ("own", "parents", "expected"),
    [
        ({"OMP_NUM_THREADS": "1", **TORCHRUN}, {}, False),
        ({"OMP_NUM_THREADS": "1", **TORCHRUN}, {"OMP_NUM_THREADS": "1"}, True),
        ({"OMP_NUM_THREADS": "2", **TORCHRUN}, {}, True),
        ({"OMP_NUM_THREADS": "1"}, {}, True),
    ],
    ids=["torchrun's", "the user's", "another number", "without torchrun"],
)
def test_the_threads_that_torchrun_sets_are_not_the_users(
    own: dict[str, str], parents: dict[str, str], expected: bool
) -> None:
    assert own_omp_num_threads(own, parents) == expected


def test_the_environment_of_a_process_can_be_read() -> None:
    assert environment_of(os.getpid()).get("PATH") == os.environ["PATH"]
    assert environment_of(0) == {}
