"""The collectives on every node but the first: its ranks of each run."""

from __future__ import annotations

from dataclasses import asdict, replace

from mgpubench.config.comm_request import CommRequest
from mgpubench.config.machine_facts import Machine, NodeDevices
from mgpubench.config.nodes import Nodes
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Job, Launcher, open_supervisor
from mgpubench.session.hello import Asked, asked_of, devices_of
from mgpubench.session.node import join
from mgpubench.session.nodes import Notices
from mgpubench.session.workers import COLLECTIVES, CommStep


def asked_of_comm(request: CommRequest) -> Asked:
    """What must be equal on all machines: all that was asked for, and that it is this command."""
    work = asked_of(request.work)
    options = {**work.options, **asdict(request.options), "command": "comm"}
    return replace(work, options=options)


def comm_devices(request: CommRequest, machine: Machine) -> NodeDevices:
    """The devices that a request takes of a machine: those of ddp."""
    return devices_of(replace(request.work, modes=("ddp",)), machine)


def take_part_in_collectives(
    request: CommRequest, nodes: Nodes, display: Notices, stop: StopSignal
) -> None:
    """Make this machine's ranks of every run, until node 0 says that the session is over.

    Raises:
        BenchError: why the session could not go on; Interrupted after a signal.
    """
    with (
        open_supervisor(stop, COLLECTIVES) as supervisor,
        join(nodes, supervisor, display, stop) as member,
    ):
        if not member.introduce(asked_of_comm(request), comm_devices(request, member.machine)):
            return

        def job_for(order: CommStep) -> tuple[Launcher, Job]:
            return supervisor, order.job(supervisor, nodes.node_rank)

        member.make_parts(job_for, CommStep)
