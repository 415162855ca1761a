"""The options of a session on several machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from mgpubench.cli.started import (
    become_agent,
    devices_of_starter,
    nodes_of_starter,
    starter_of_this,
)
from mgpubench.cli.work_options import Decorator
from mgpubench.config.nodes import DEFAULT_JOIN_TIMEOUT_S, Nodes, parse_nodes
from mgpubench.config.types import MODES, MULTI_PROCESS_MODES, Mode
from mgpubench.errors import RequestRefused

if TYPE_CHECKING:
    from mgpubench.launch.signals import StopSignal

NODES: tuple[Decorator, ...] = (
    click.option(
        "--nnodes",
        type=int,
        help="Number of machines. Start the same command on each of them; --gpus is then per "
        "machine, and only ddp, fsdp and deepspeed use the GPUs of all.  [default: 1]",
    ),
    click.option(
        "--node-rank", type=int, help="Which of them this is: 0 writes the results, then 1, 2, ..."
    ),
    click.option(
        "--rdzv-endpoint",
        metavar="HOST:PORT",
        help="Where they meet: the machine of --node-rank 0, and a free port there.",
    ),
    click.option(
        "--join-timeout",
        type=float,
        metavar="SECONDS",
        help="How long the machines wait for each other to start.  "
        f"[default: {DEFAULT_JOIN_TIMEOUT_S:g}]",
    ),
    click.option(
        "--slurm",
        is_flag=True,
        help="Refuse to run except under srun. Its machines are taken anyway if it has started "
        "several tasks.",
    ),
)

NODE_OPTIONS = ("nnodes", "node_rank", "rdzv_endpoint", "join_timeout", "slurm")
"""Their parameters."""


def take_nodes(ctx: click.Context, values: dict[str, Any]) -> Nodes | None:
    """Take the machines out of the values of all options; None if there is only this one.

    Under a starter, such as torchrun, they are those that it names. All processes but one of each
    machine wait and exit here.

    Raises:
        RequestRefused: if they are impossible.
    """
    started = starter_of_this()
    given = {name: values.pop(name) for name in NODE_OPTIONS}
    if given["slurm"] and "SLURM_PROCID" not in os.environ:
        raise RequestRefused(
            "--slurm: there is no SLURM_PROCID, so srun has not started this process",
            "Start it with: srun --ntasks-per-node=1 mgpubench run ...",
        )
    if started is not None:
        become_agent(ctx, started)
        values["gpus"] = devices_of_starter(started, values)
        return nodes_of_starter(started, given)
    nodes = parse_nodes(*(given[name] for name in NODE_OPTIONS[:-1]))
    return nodes if nodes is not None and nodes.num_nodes > 1 else None


def take_part_as(part: Callable[[StopSignal], None], close: Callable[[], None]) -> int:
    """Make this machine's part of a session whose results node 0 writes; the exit code.

    At the end `close` gives the terminal back.
    """
    from mgpubench.launch.signals import StopSignal

    with StopSignal().installed() as stop:
        try:
            part(stop)
        finally:
            close()
    click.echo("done: node 0 has the results", err=True)
    return 0


def check_modes(
    nodes: Nodes | None,
    modes: tuple[Mode, ...] | None,
    able: Sequence[Mode] = MULTI_PROCESS_MODES,
) -> None:
    """Refuse several machines for modes that would use only the first; `able` use all of them.

    Raises:
        RequestRefused: naming the modes.
    """
    if nodes is None or set(able) & set(modes or MODES):
        return
    raise RequestRefused(
        f"--nnodes {nodes.num_nodes} and --mode {','.join(modes or ())}: none of these uses "
        "several machines, and node 0 alone would run",
        f"Use one that does: {', '.join(able)}.",
    )
