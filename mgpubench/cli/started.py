"""Started by torchrun, or by srun with several tasks: what this process does then."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

import click

from mgpubench.config.nodes import DEFAULT_JOIN_TIMEOUT_S, Nodes
from mgpubench.errors import RequestRefused
from mgpubench.format import format_count
from mgpubench.launch.nodes.siblings import as_agent, wait_for_agent
from mgpubench.launch.nodes.starters import (
    Started,
    environment_of,
    find_starter,
    own_omp_num_threads,
)
from mgpubench.launch.orphans import interrupt_with_starter
from mgpubench.machine.host import usable_cores

ONE_TASK = "Use one task per machine: srun --ntasks-per-node=1 with --gpus-per-node."


def starter_of_this() -> Started | None:
    """What has started this process and others like it; None if it was started alone."""
    return find_starter(os.environ, os.getppid())


def become_agent(ctx: click.Context, started: Started) -> None:
    """Be the agent of this machine until the command ends, or wait for the agent and exit.

    Raises:
        RunFailed: if there is no agent.
    """
    interrupt_with_starter()
    if started.local_rank != 0:
        ignore_ctrl_c()
        wait_for_agent(started.key)
        ctx.exit(0)
    ctx.with_resource(as_agent(started.key))
    if not own_omp_num_threads(os.environ, environment_of(os.getppid())):
        del os.environ["OMP_NUM_THREADS"]
        say("torchrun's OMP_NUM_THREADS=1 is ignored: the cores are shared by the ranks")


def ignore_ctrl_c() -> None:
    """Leave Ctrl-C, which reaches all processes of a terminal, to the agent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def nodes_of_starter(started: Started, values: Mapping[str, Any]) -> Nodes | None:
    """The machines that the starter names; None if there is only this one.

    `values` are those of the options about machines.

    Raises:
        RequestRefused: if the options say it too.
    """
    for name in ("nnodes", "node_rank"):
        if values[name] is not None:
            raise RequestRefused(
                f"--{name.replace('_', '-')} and {started.by} exclude each other: "
                f"{started.by} says which machines there are",
                "Leave it out, or start mgpubench by hand on each machine.",
            )
    given = values["join_timeout"]
    timeout_s = DEFAULT_JOIN_TIMEOUT_S if given is None else given
    return started.nodes(timeout_s, endpoint=values["rdzv_endpoint"])


def devices_of_starter(started: Started, values: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The numbers of devices: one for each process that was started here, unless it is only one.

    Raises:
        RequestRefused: if the options say otherwise, or this process sees too few devices.
    """
    gpus: tuple[int, ...] | None = values["gpus"]
    if not started.is_per_gpu:
        return gpus
    count = started.num_local
    if gpus not in (None, (count,)):
        raise RequestRefused(
            f"--gpus {','.join(map(str, gpus or ()))}, and {started.by} has started "
            f"{count} processes here",
            "Leave --gpus out: a run takes one GPU for each of them.",
        )
    if started.by == "srun":
        check_binding(count, on_cpu=not _may_use_gpus(values))
    return (count,)


def _may_use_gpus(values: Mapping[str, Any]) -> bool:
    return bool(
        values["device"] in ("cuda", "auto") or not (values["device"] or values.get("smoke"))
    )


def check_binding(count: int, *, on_cpu: bool) -> None:
    """Refuse a first task that srun keeps from the GPUs or cores of the others.

    Raises:
        RequestRefused: naming what it sees.
    """
    cores = usable_cores()
    if cores < count:
        raise RequestRefused(
            f"srun has bound this task to {format_count(cores, 'core')}, and the {count} tasks of "
            "its machine need as many at least",
            ONE_TASK,
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not on_cpu and len(visible.split(",")) < count:
        raise RequestRefused(
            f"srun shows this task only the GPUs {visible} (CUDA_VISIBLE_DEVICES), and the "
            f"{count} tasks of its machine need {count}",
            ONE_TASK,
        )


def say(notice: str) -> None:
    """Print a note on stderr."""
    click.echo(f"note: {notice}", err=True)
