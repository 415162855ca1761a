"""What launchers leave in the environment, and what the ranks of a run get instead."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

LAUNCHER_VARIABLES = re.compile(
    r"(RANK|LOCAL_RANK|GROUP_RANK|ROLE_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_WORLD_SIZE"
    r"|ROLE_WORLD_SIZE|ROLE_NAME|MASTER_\w+|TORCHELASTIC_\w+|SLURM_\w+)"
)
"""Variables by which launchers speak to their ranks. Left over from another job, they would make
torch wait for a store that does not exist, so workers drop them."""


GROUP_VARIABLE = "MGPUBENCH_GROUP"
"""Tells the ranks of a run under which prefix they meet in the store. torch has no variable for
this; MASTER_ADDR and MASTER_PORT are its own."""

INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the ranks of a run on several machines find each other."""

    host: str
    port: int
    group: str
    """Prefix of the run's keys in the store."""
    interface: str
    """Network interface of this machine for their traffic, unless the user names another one."""


def prepare_environment(*, hide_gpus: bool, meeting: Meeting | None = None) -> None:
    """Give this process the environment of a worker, on one machine or on several."""
    for name in list(os.environ):
        if LAUNCHER_VARIABLES.fullmatch(name) or name == GROUP_VARIABLE:
            del os.environ[name]
    if meeting is None:
        # Ranks on one machine must not be reachable from outside, nor need a host name.
        os.environ.update(dict.fromkeys(INTERFACE_VARIABLES, loopback_interface()))
    else:
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = meeting.host, str(meeting.port)
        os.environ[GROUP_VARIABLE] = meeting.group
        os.environ.update(interfaces_for(os.environ, meeting.interface))
    if hide_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def interfaces_for(environ: Mapping[str, str], reaching: str) -> dict[str, str]:
    """The interfaces of gloo and NCCL: the user's own, or else the one that reaches node 0."""
    return {name: environ.get(name) or reaching for name in INTERFACE_VARIABLES}


def loopback_interface() -> str:
    """The name of the network interface that leads only to this machine."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), "")
