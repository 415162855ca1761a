"""Variables that launchers leave behind, and launchers that would start mgpubench many times."""

from __future__ import annotations

import os

import pytest

from mgpubench.errors import RequestRefused
from mgpubench.launch.environment import (
    LAUNCHER_VARIABLES,
    loopback_interface,
    prepare_environment,
    refuse_foreign_launcher,
)


@pytest.mark.parametrize(
    "name",
    [
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME"),
        *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"),
        *("SLURM_PROCID", "SLURM_JOB_ID", "SLURM_NTASKS"),
    ],
)
def test_variables_of_launchers_are_known(name: str) -> None:
    """C18."""
    assert LAUNCHER_VARIABLES.fullmatch(name)


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "PYTORCH_ALLOC_CONF"),
        *("MY_RANK", "RANKS", "FRANK", "MASTERY", "SLURM", "master_addr"),
    ],
)
def test_other_variables_are_kept(name: str) -> None:
    assert not LAUNCHER_VARIABLES.fullmatch(name)


@pytest.mark.parametrize("hide_gpus", [True, False])
def test_a_worker_gets_the_environment_of_one_machine(
    monkeypatch: pytest.MonkeyPatch, hide_gpus: bool
) -> None:
    """C18: a left-over MASTER_ADDR would lead to a store that does not exist."""
    environment = {"MASTER_ADDR": "192.0.2.1", "CUDA_VISIBLE_DEVICES": "0,1", "MY_RANK": "3"}
    monkeypatch.setattr(os, "environ", environment)
    prepare_environment(hide_gpus=hide_gpus)
    assert environment == {
        "MY_RANK": "3",
        "CUDA_VISIBLE_DEVICES": "" if hide_gpus else "0,1",
        "GLOO_SOCKET_IFNAME": loopback_interface(),
        "NCCL_SOCKET_IFNAME": loopback_interface(),
    }


def test_torchrun_is_refused_by_name() -> None:
    """C33."""
    with pytest.raises(RequestRefused, match="started under torchrun") as caught:
        refuse_foreign_launcher({"TORCHELASTIC_RUN_ID": "none", "RANK": "0"})
    assert "on its own" in caught.value.hint


def test_several_tasks_of_srun_are_refused_by_name() -> None:
    with pytest.raises(RequestRefused, match="started by srun as one of 4 tasks") as caught:
        refuse_foreign_launcher({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4"})
    assert "srun --ntasks=1" in caught.value.hint


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "192.0.2.1"},
        {"TORCHELASTIC_USE_AGENT_STORE": "True"},
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
        {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "8"},  # inside sbatch, without srun
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "many"},
    ],
    ids=str,
)
def test_other_environments_are_no_launcher(environ: dict[str, str]) -> None:
    refuse_foreign_launcher(environ)
