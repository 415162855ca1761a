"""The machines of a session: this one alone, or this one as the first of several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from mgpubench.config.machine_facts import NodeDevices
from mgpubench.config.nodes import Nodes
from mgpubench.config.plan import Plan
from mgpubench.config.request import Request
from mgpubench.format import format_count
from mgpubench.launch.loss_lines import Source
from mgpubench.launch.nodes.endpoint import listen, resolve
from mgpubench.launch.nodes.first import First, NodesLauncher, leading
from mgpubench.launch.nodes.link import open_link
from mgpubench.launch.nodes.link_process import Place
from mgpubench.launch.nodes.losses import LossSource
from mgpubench.launch.nodes.messages import Hello
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Launcher, Supervisor, open_supervisor
from mgpubench.machine.network import interface_to
from mgpubench.machine.system import Survey
from mgpubench.session.document import installed_part
from mgpubench.session.hello import Asked, make_hello, refuse_differences


@dataclass(frozen=True, kw_only=True, slots=True)
class Announcement:
    """What node 0 says about the runs to come, before the first one."""

    request: Request
    plan: Plan
    """One round, by which models and data can be checked."""

    @classmethod
    def of(cls, request: Request, plan: Plan) -> Announcement:
        """About the runs of a plan."""
        return cls(request=request, plan=plan.with_first_round_only())


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

    def document_part(self, devices_per_node: Sequence[int]) -> dict[str, object]:
        """What session.json of a training says about each machine; nothing if there is only one."""
        if not self.records:
            return {}
        counts = zip(self.records, devices_per_node, strict=True)
        return {"nodes": [{**record, "devices": [count]} for record, count in counts]}

    def join(self, asked: Asked, devices: NodeDevices, survey: Survey) -> None:
        """Wait for the other machines, and refuse what must be equal and is not."""

    def dismiss(self) -> None:
        """Wait for the other machines, if only to tell them that there is nothing to do."""

    def announce(self, announcement: object) -> None:
        """Tell the others what will be run."""

    def agree(self, trained: Mapping[str, object]) -> None:
        """Wait until all have checked their models and data, and refuse what is not equal."""

    def launcher(self, local: Supervisor) -> Launcher:
        """What runs the jobs of a session, with this machine's supervisor."""
        return local

    def loss_sources(self) -> Sequence[Source]:
        """The lines of loss of a training, one source for each of the other machines."""
        return ()

    def await_losses(self) -> None:
        """Wait a little for their last lines."""

    def conclude(self, failed: int, planned: int) -> None:
        """All runs have been made, and so many have failed."""


@dataclass(slots=True)
class Together(Alone):
    """This machine as node 0 of several."""

    first: First
    display: Notices
    devices: tuple[NodeDevices, ...] = field(default=(), init=False)
    records: tuple[dict[str, Any], ...] = field(default=(), init=False)
    _losses: list[LossSource] = field(default_factory=list, init=False)

    def join(self, asked: Asked, devices: NodeDevices, survey: Survey) -> None:
        """Wait for the other machines, and refuse what must be equal and is not."""
        own = make_hello(asked, devices, survey, self.first.interface)
        hellos = self.first.gather(self._welcome)
        refuse_differences(own.agreed, [hello.agreed for hello in hellos])
        self.devices = tuple(hello.facts.devices for hello in hellos)
        self.records = tuple(
            {"node": node, **hello.facts.record} for node, hello in enumerate([own, *hellos])
        )

    def _welcome(self, node: int, hello: Hello) -> None:
        counts = hello.facts.devices.counts
        devices = f", {format_count(max(counts), 'device')}" if counts else ""
        self.display.notice(f"node {node} has joined: {hello.host}{devices}")

    def dismiss(self) -> None:
        """Wait for the other machines, if only to tell them that there is nothing to do."""
        self.first.gather(self._welcome)

    def announce(self, announcement: object) -> None:
        """Tell the others what will be run."""
        self.first.announce(announcement)

    def agree(self, trained: Mapping[str, object]) -> None:
        """Wait until all have checked their models and data, and refuse what is not equal."""
        refuse_differences(dict(trained), self.first.answers())

    def launcher(self, local: Supervisor) -> Launcher:
        """What runs the jobs of a session, with this machine's supervisor."""
        return NodesLauncher(self.first, local)

    def loss_sources(self) -> Sequence[Source]:
        """The lines of loss of a training, one source for each of the other machines."""
        self._losses = [LossSource(self.first.link, node) for node in self.first.others]
        return [source.new_lines for source in self._losses]

    def await_losses(self) -> None:
        """Wait a little for their last lines."""
        for source in self._losses:
            source.await_last()

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


def dismiss(nodes: Nodes | None, stop: StopSignal, display: Notices) -> None:
    """Wait for the other machines of a session that has nothing left to do, and tell them.

    Raises:
        BenchError: if they do not come; Interrupted after a signal.
    """
    if nodes is not None:
        with (
            open_supervisor(stop, ()) as supervisor,
            open_nodes(nodes, supervisor, stop, display) as them,
        ):
            them.dismiss()


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


def made_on(survey: Survey, nodes: Alone) -> dict[str, object]:
    """The part of session.json about the machines and what is installed there."""
    others = {"nodes": nodes.records} if nodes.records else {}
    return {"system": asdict(survey.system), **installed_part(survey), **others}
