"""Every node but the first: join, agree to the plan, and make one part after the other."""

from __future__ import annotations

from collections.abc import Mapping

from mgpubench.config.nodes import Nodes
from mgpubench.config.request import Request
from mgpubench.launch.nodes.end import ending
from mgpubench.launch.nodes.link import Link, open_link
from mgpubench.launch.nodes.messages import PLAN, ack_key, command_key, done_key, hello_key
from mgpubench.launch.nodes.part import Part
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from mgpubench.machine.network import interface_to
from mgpubench.session.document import trained_part
from mgpubench.session.nodes import Announcement, Notices, make_hello, place_of
from mgpubench.session.prepare import (
    Workload,
    ask_torch,
    list_data,
    preflight,
    take_survey,
)
from mgpubench.session.supervisors import Environment, open_supervisors
from mgpubench.session.workers import IMAGES, preload_for
from mgpubench.training.data.listing import ImageListing


def take_part(request: Request | None, nodes: Nodes, display: Notices, stop: StopSignal) -> None:
    """Make this machine's part of every run, until node 0 says that the session is over.

    Without a request the session is resumed, and node 0 knows what was asked for.

    Raises:
        BenchError: why the session could not go on; Interrupted after a signal.
    """
    place = place_of(nodes)
    listings = list_data(request, stop) if request else {}
    with (
        open_supervisor(stop, preload_for(request) if request else IMAGES) as supervisor,
        open_link(supervisor, place, stop) as link,
        ending(link),
    ):
        interface = interface_to(place.host, place.port)
        machine, build = ask_torch(supervisor)
        survey = take_survey(machine, build)
        link.wait_to_join()
        display.notice(f"joined node 0 at {nodes.endpoint} as node {nodes.node_rank}")
        link.put(hello_key(nodes.node_rank), make_hello(request, survey, interface))
        link.watch([0])
        link.wait([PLAN])
        announcement: Announcement = link.read(PLAN)
        if request is None:
            listings = list_data(announcement.request, stop)
        listings = _under_names_of(announcement.request, listings)
        facts = preflight(supervisor, announcement.plan, listings)
        link.put(ack_key(nodes.node_rank), trained_part(Workload(machine, "", facts, listings)))
        with open_supervisors(supervisor, announcement.request, listings, stop) as supervisors:
            _make_parts(link, interface, supervisors)


def _under_names_of(
    request: Request, listings: Mapping[str, ImageListing]
) -> dict[str, ImageListing]:
    """This machine's listings under node 0's names of the folders, which may lie elsewhere here."""
    theirs = dict.fromkeys(part.data for part in request.parts if part.uses_folder)
    return dict(zip(theirs, listings.values(), strict=True))


def _make_parts(link: Link, interface: str, supervisors: Mapping[Environment, Supervisor]) -> None:
    run = 0
    while not link.wait([command_key(run)]):
        order = link.read(command_key(run))
        supervisor = supervisors[order.config.env]
        outcome = Part(link, interface, run).make(
            supervisor, order.job(supervisor, link.place.node)
        )
        link.put(done_key(run, link.place.node), outcome)
        link.forget([command_key(run)])
        run += 1
