"""Every node but the first: join, agree to the plan, and make one part after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from mgpubench.config.machine_facts import Machine, NodeDevices
from mgpubench.config.nodes import Nodes
from mgpubench.config.request import Request
from mgpubench.launch.nodes.end import ending
from mgpubench.launch.nodes.link import Link, open_link
from mgpubench.launch.nodes.messages import PLAN, ack_key, command_key, done_key, hello_key
from mgpubench.launch.nodes.part import Part
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Job, Launcher, Supervisor, open_supervisor
from mgpubench.machine.network import interface_to
from mgpubench.machine.system import Survey
from mgpubench.session.document import trained_part
from mgpubench.session.hello import (
    Asked,
    asked_of,
    devices_of,
    make_hello,
    refuse_code_by_name,
    unplanned_devices,
)
from mgpubench.session.nodes import Announcement, Notices, place_of
from mgpubench.session.prepare import (
    Workload,
    ask_torch,
    list_data,
    preflight,
    take_survey,
)
from mgpubench.session.supervisors import open_supervisors
from mgpubench.session.workers import IMAGES, RunOrder, preload_for
from mgpubench.training.data.listing import ImageListing

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Member:
    """This machine in a session that node 0 leads."""

    nodes: Nodes
    link: Link
    interface: str
    machine: Machine
    survey: Survey

    def introduce(self, asked: Asked, devices: NodeDevices) -> bool:
        """Say who this machine is, and wait for the plan. False if there is nothing to do.

        Raises:
            SessionEnded: if the session cannot go on.
        """
        hello = make_hello(asked, devices, self.survey, self.interface)
        self.link.put(hello_key(self.nodes.node_rank), hello)
        self.link.watch([0])
        return not self.link.wait([PLAN])

    def agree(self, trained: Mapping[str, object]) -> None:
        """Say what was found out about models and data."""
        self.link.put(ack_key(self.nodes.node_rank), dict(trained))

    def make_parts(self, job_for: Callable[[T], tuple[Launcher, Job]], order_type: type[T]) -> None:
        """Make this machine's part of every run, until node 0 says that the session is over.

        `job_for` knows what an order of node 0 means here.

        Raises:
            SessionEnded: if node 0 sends something that is not of this type.
        """
        run, node = 0, self.nodes.node_rank
        while not self.link.wait([command_key(run)]):
            launcher, job = job_for(self.link.read(command_key(run), order_type))
            outcome = Part(self.link, self.interface, run).make(launcher, job)
            self.link.put(done_key(run, node), outcome)
            self.link.forget([command_key(run)])
            run += 1


@contextmanager
def join(
    nodes: Nodes, supervisor: Supervisor, display: Notices, stop: StopSignal
) -> Iterator[Member]:
    """Join node 0. At the end it hears the reason.

    Raises:
        BenchError: why the session could not go on; Interrupted after a signal.
    """
    place = place_of(nodes)
    with open_link(supervisor, place, stop) as link, ending(link):
        interface = interface_to(place.host, place.port)
        machine, build = ask_torch(supervisor)
        survey = take_survey(machine, build)
        link.wait_to_join()
        display.notice(f"joined node 0 at {nodes.endpoint} as node {nodes.node_rank}")
        yield Member(nodes, link, interface, machine, survey)


def take_part(request: Request | None, nodes: Nodes, display: Notices, stop: StopSignal) -> None:
    """Make this machine's part of every run, until node 0 says that the session is over.

    Without a request the session is resumed, and node 0 knows what was asked for.

    Raises:
        BenchError: why the session could not go on; Interrupted after a signal.
    """
    listings = list_data(request, stop) if request else {}
    with (
        open_supervisor(stop, preload_for(request) if request else IMAGES) as supervisor,
        join(nodes, supervisor, display, stop) as member,
    ):
        machine = member.machine
        devices = devices_of(request, machine) if request else unplanned_devices(machine)
        if not member.introduce(asked_of(request), devices):
            return
        announcement = member.link.read(PLAN, Announcement)
        node = nodes.node_rank
        named_here = [part.model for part in request.parts] if request else []
        refuse_code_by_name(node, [run.model for run in announcement.plan.runs], named_here)
        if request is None:
            listings = list_data(announcement.request, stop)
        listings = _under_names_of(announcement.request, listings)
        facts = preflight(supervisor, announcement.plan, listings)
        member.agree(trained_part(Workload(machine, "", facts, listings)))
        # Variables of variants are those of this machine's command, if it has them.
        asked = request or announcement.request
        with open_supervisors(supervisor, asked, listings, stop) as supervisors:

            def job_for(order: RunOrder) -> tuple[Launcher, Job]:
                refuse_code_by_name(node, [order.config.model], named_here)
                own = supervisors[order.config.env]
                return own, order.job(own, node)

            member.make_parts(job_for, RunOrder)


def _under_names_of(
    request: Request, listings: Mapping[str, ImageListing]
) -> dict[str, ImageListing]:
    """This machine's listings under node 0's names of the folders, which may lie elsewhere here."""
    theirs = dict.fromkeys(part.data for part in request.parts if part.uses_folder)
    return dict(zip(theirs, listings.values(), strict=True))
