"""What launchers leave in the environment, and what the ranks of one machine get instead."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

from mgpubench.errors import RequestRefused

LAUNCHER_VARIABLES = re.compile(
    r"(RANK|LOCAL_RANK|GROUP_RANK|ROLE_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_WORLD_SIZE"
    r"|ROLE_WORLD_SIZE|ROLE_NAME|MASTER_\w+|TORCHELASTIC_\w+|SLURM_\w+)"
)
"""Variables by which launchers speak to their ranks. Left over from another job, they would make
torch wait for a store that does not exist, so workers drop them."""


def prepare_environment(*, hide_gpus: bool) -> None:
    """Give this process the environment of a worker on one machine."""
    for name in list(os.environ):
        if LAUNCHER_VARIABLES.fullmatch(name):
            del os.environ[name]
    # Ranks on one machine must not be reachable from outside, nor need a host name.
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = loopback_interface()
    if hide_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def loopback_interface() -> str:
    """The name of the network interface that leads only to this machine."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), "")


def refuse_foreign_launcher(environ: Mapping[str, str]) -> None:
    """Refuse to be started N times: mgpubench starts the processes itself.

    Raises:
        RequestRefused: under torchrun, or as one of several tasks of srun.
    """
    if "TORCHELASTIC_RUN_ID" in environ:
        raise RequestRefused(
            "started under torchrun, which would run the whole benchmark once in every process",
            "Start mgpubench on its own; it starts one process per GPU itself.",
        )
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "")
    if "SLURM_PROCID" in environ and tasks.isdecimal() and int(tasks) > 1:
        raise RequestRefused(
            f"started by srun as one of {tasks} tasks, each of which would run the whole benchmark",
            "Use srun --ntasks=1 with all GPUs; mgpubench starts one process per GPU itself.",
        )
