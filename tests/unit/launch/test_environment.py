"""Variables that launchers leave behind."""

from __future__ import annotations

import os

import pytest

from mgpubench.launch.environment import (
    LAUNCHER_VARIABLES,
    loopback_interface,
    prepare_environment,
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
