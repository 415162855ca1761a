"""The machines of a session: this one alone, or this one as the first of several."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from mgpubench import __version__
from mgpubench.config.configure import Draft
from mgpubench.config.device_choice import choose_device
from mgpubench.config.machine_facts import Machine, NodeDevices
from mgpubench.config.nodes import Nodes
from mgpubench.config.plan import Plan
from mgpubench.config.request import Request
from mgpubench.errors import RequestRefused
from mgpubench.format import format_count
from mgpubench.launch.environment import interfaces_for
from mgpubench.launch.nodes.endpoint import listen, resolve
from mgpubench.launch.nodes.first import (
    First,
    NodesLauncher,
    leading,
)
from mgpubench.launch.nodes.link import open_link
from mgpubench.launch.nodes.link_process import Place
from mgpubench.launch.nodes.messages import Hello
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Launcher, Supervisor
from mgpubench.machine.environment import recorded_environment
from mgpubench.machine.network import interface_to
from mgpubench.machine.system import Survey
from mgpubench.session.document import differences, installed_part, own_commit

MAY_DIFFER = ("out", "gpus", "data")
"""Fields of a request that machines may have different: the data are compared by their digests."""

MAX_DIFFERENCES = 5
"""So many are shown in an error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """What a machine says about itself when it joins."""

    devices: NodeDevices
    record: dict[str, Any]
    """Its part of session.json."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Announcement:
    """What node 0 says about the runs to come, before the first one."""

    request: Request
    plan: Plan
    """One round, by which models and data can be checked."""


class Notices(Protocol):
    """What a person sees."""

    def notice(self, text: str) -> None:
        """Show something that matters."""


class Alone:
    """This machine, which needs no others."""

    devices: tuple[NodeDevices, ...] = ()
    """Those of the other machines."""
    records: tuple[dict[str, Any], ...] = ()
    """What session.json says about each machine; empty if there is only one."""

    @property
    def installed(self) -> dict[str, Any]:
        """What must be as it was when a session is resumed, by its place in session.json."""
        return {
            f"nodes.{node}.{part}": record[part]
            for node, record in enumerate(self.records)
            for part in ("machine", "environment", "torch")
        }

    def join(self, request: Request | None, survey: Survey) -> None:
        """Wait for the other machines, and refuse what must be equal and is not.

        Without a request they take that of the session, which is resumed.
        """

    def announce(self, request: Request, plan: Plan) -> None:
        """Tell the others what will be run."""

    def agree(self, trained: Mapping[str, object]) -> None:
        """Wait until all have checked their models and data, and refuse what is not equal."""

    def launcher(self, local: Supervisor) -> Launcher:
        """What runs the jobs of a session, with this machine's supervisor."""
        return local

    def conclude(self, failed: int, planned: int) -> None:
        """All runs have been made, and so many have failed."""


@dataclass(slots=True)
class Together(Alone):
    """This machine as node 0 of several."""

    first: First
    display: Notices
    devices: tuple[NodeDevices, ...] = field(default=(), init=False)
    records: tuple[dict[str, Any], ...] = field(default=(), init=False)

    def join(self, request: Request | None, survey: Survey) -> None:
        """Wait for the other machines, and refuse what must be equal and is not."""
        own = make_hello(request, survey, self.first.interface)
        hellos = self.first.gather(self._welcome)
        _refuse_differences(own.agreed, [hello.agreed for hello in hellos])
        self._check_devices(own.facts.devices, [hello.facts.devices for hello in hellos])
        self.devices = tuple(hello.facts.devices for hello in hellos)
        self.records = tuple(
            {"node": node, **hello.facts.record} for node, hello in enumerate([own, *hellos])
        )

    def _welcome(self, node: int, hello: Hello) -> None:
        counts = hello.facts.devices.counts
        devices = f", {format_count(max(counts), 'device')}" if counts else ""
        self.display.notice(f"node {node} has joined: {hello.host}{devices}")

    def _check_devices(self, own: NodeDevices, others: Sequence[NodeDevices]) -> None:
        for node, other in enumerate(others, start=1):
            if other.device_type != own.device_type:
                raise RequestRefused(
                    f"node 0 would run on {own.device_type}, and node {node} on "
                    f"{other.device_type}",
                    "Give --device on all machines, or look at: mgpubench info.",
                )
            if len(other.counts) != len(own.counts):
                raise RequestRefused(
                    f"--gpus has {format_count(len(own.counts), 'number')} on node 0, and "
                    f"{len(other.counts)} on node {node}",
                    "Give as many on each machine: they are taken one after the other.",
                )

    def announce(self, request: Request, plan: Plan) -> None:
        """Tell the others what will be run."""
        self.first.announce(Announcement(request=request, plan=plan.with_first_round_only()))

    def agree(self, trained: Mapping[str, object]) -> None:
        """Wait until all have checked their models and data, and refuse what is not equal."""
        _refuse_differences(dict(trained), self.first.answers())

    def launcher(self, local: Supervisor) -> Launcher:
        """What runs the jobs of a session, with this machine's supervisor."""
        return NodesLauncher(self.first, local)

    def conclude(self, failed: int, planned: int) -> None:
        """All runs have been made, and so many have failed."""
        if failed:
            self.first.failures = f"{failed} of {format_count(planned, 'run')} failed"


@contextmanager
def open_nodes(
    nodes: Nodes | None, supervisor: Supervisor, stop: StopSignal, display: Notices
) -> Iterator[Alone]:
    """The machines of a session, for node 0 or for the only one.

    Raises:
        RequestRefused: if the endpoint cannot be opened.
    """
    if nodes is None:
        yield Alone()
        return
    place = place_of(nodes)
    with (
        open_link(supervisor, place, stop) as link,
        leading(link, interface_to(place.host, place.port)) as first,
    ):
        count = format_count(nodes.num_nodes - 1, "machine")
        display.notice(f"waiting for {count} at {nodes.endpoint}")
        yield Together(first, display)


def place_of(nodes: Nodes) -> Place:
    """Where the machines meet. Node 0 opens its port.

    Raises:
        RequestRefused: if the name does not resolve, or the port cannot be opened.
    """
    address = resolve(nodes)
    return Place(
        host=address,
        port=nodes.port,
        node=nodes.node_rank,
        num_nodes=nodes.num_nodes,
        listener=listen(nodes, address) if nodes.serves else None,
        prefix=nodes.store,
        join_timeout_s=nodes.join_timeout_s,
    )


def devices_of(request: Request, machine: Machine) -> NodeDevices:
    """The devices that a request takes of a machine."""
    device_type = choose_device(request, machine)
    counts = Draft(request.parts[0], machine, device_type, 0).counts
    return NodeDevices(machine=machine, device_type=device_type, counts=counts)


def make_hello(request: Request | None, survey: Survey, interface: str) -> Hello:
    """Who this machine is. Without a request its devices are those of the resumed session."""
    machine = survey.machine
    assert machine is not None  # torch has described it
    devices = NodeDevices(machine=machine, device_type="", counts=())
    asked: dict[str, Any] = {}
    if request is not None:
        devices = devices_of(request, machine)
        asked = {name: value for name, value in asdict(request).items() if name not in MAY_DIFFER}
    return Hello(
        host=socket.gethostname(),
        agreed={
            "mgpubench": {"version": __version__, "commit": own_commit()},
            "torch": machine.torch_version,
            "torchvision": machine.torchvision_version,
            "CUDA": machine.cuda_version,
            "NCCL": machine.nccl_version,
            "Python": ".".join(machine.python_version.split(".")[:2]),
            "environment": recorded_environment(survey.environment),
            "options": asked,
        },
        facts=NodeFacts(
            devices=devices,
            record={
                "interfaces": interfaces_for(os.environ, interface),
                "devices": list(devices.counts),
                "system": asdict(survey.system),
                **installed_part(survey),
            },
        ),
    )


def _refuse_differences(own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> None:
    """Refuse nodes that differ from node 0 in what must be equal."""
    found = [
        f"{name} is {ours!r} on node 0 and {theirs!r} on node {node}"
        for node, other in enumerate(others, start=1)
        for name, ours, theirs in differences("", dict(own), dict(other))
    ]
    if found:
        more = f"; and {len(found) - MAX_DIFFERENCES} more" if len(found) > MAX_DIFFERENCES else ""
        raise RequestRefused(
            f"the machines are not equal: {'; '.join(found[:MAX_DIFFERENCES])}{more}",
            "All ranks must do equal work: use the same command, versions, variables and data.",
        )
