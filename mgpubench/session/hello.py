"""What a machine says about itself when it joins others, and what must be equal on all of them."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mgpubench import __version__
from mgpubench.config.configure import Draft
from mgpubench.config.device_choice import choose_device
from mgpubench.config.machine_facts import Machine, NodeDevices
from mgpubench.config.request import Request
from mgpubench.config.types import is_own_model
from mgpubench.errors import RequestRefused
from mgpubench.format import format_count
from mgpubench.launch.environment import interfaces_for
from mgpubench.launch.nodes.messages import Hello
from mgpubench.machine.environment import recorded_environment
from mgpubench.machine.system import Survey
from mgpubench.session.document import differences, installed_part, own_commit

MAY_DIFFER = ("out", "gpus", "data")
"""Fields of a request that machines may have different: the data are compared by their digests."""

MEANINGS = {
    "datasets": "the names or sizes of the images",
    "evaluation": "the names or sizes of the images of --eval-data",
    "models": "the layers or the code of the model",
}
"""What a digest stands for."""

MAX_DIFFERENCES = 5
"""So many are shown in an error."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for on the command line of a machine."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Those that must be equal on all machines."""
    gpus: tuple[int, ...] | None = None
    """The machine's own --gpus; None if it was not given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """What a machine says about itself when it joins."""

    devices: NodeDevices
    record: dict[str, Any]
    """Its part of session.json."""


def asked_of(request: Request | None) -> Asked:
    """All of a request. Without one a session is resumed, and has its own options."""
    if request is None:
        return Asked()
    options = {name: value for name, value in asdict(request).items() if name not in MAY_DIFFER}
    return Asked(options, request.gpus)


def devices_of(request: Request, machine: Machine) -> NodeDevices:
    """The devices that a request takes of a machine."""
    device_type = choose_device(request, machine)
    counts = Draft(request.parts[0], machine, device_type, 0).counts
    return NodeDevices(machine=machine, device_type=device_type, counts=counts)


def devices_of_node(
    node: int, request: Request, theirs: NodeDevices, gpus: tuple[int, ...] | None
) -> NodeDevices:
    """The devices that node 0's request takes of another machine.

    It has `theirs.counts` if they were given there, or else `gpus`, or what a machine has by
    default.

    Raises:
        RequestRefused: if that machine lacks them, or they are of another kind than node 0's.
    """
    # The batch is shared by the devices of all machines, and not by those of one.
    gpus = theirs.counts or gpus
    try:
        here = replace(request, gpus=gpus, global_batch=None, batch_per_gpu=None)
        return devices_of(here, theirs.machine)
    except RequestRefused as error:
        raise RequestRefused(f"node {node}: {error.message}", error.hint) from error


def unplanned_devices(machine: Machine, gpus: tuple[int, ...] | None = None) -> NodeDevices:
    """A machine of a session whose devices node 0 decides; `gpus` is what was asked for there."""
    return NodeDevices(machine=machine, device_type="", counts=gpus or ())


def make_hello(asked: Asked, devices: NodeDevices, survey: Survey, interface: str) -> Hello:
    """Who this machine is."""
    machine = devices.machine
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
            "options": dict(asked.options),
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


def check_devices(own: NodeDevices, others: Sequence[NodeDevices]) -> None:
    """Refuse nodes whose devices are of another kind than node 0's, or another list of numbers.

    Raises:
        RequestRefused: naming the first one.
    """
    for node, other in enumerate(others, start=1):
        if other.device_type != own.device_type:
            raise RequestRefused(
                f"node 0 would run on {own.device_type}, and node {node} on {other.device_type}",
                "Give --device on all machines, or look at: mgpubench info.",
            )
        if len(other.counts) != len(own.counts):
            raise RequestRefused(
                f"--gpus has {format_count(len(own.counts), 'number')} on node 0, and "
                f"{len(other.counts)} on node {node}",
                "Give as many on each machine: they are taken one after the other.",
            )


def refuse_code_by_name(
    node: int, models: Iterable[str], named_here: Collection[str | None]
) -> None:
    """Refuse an own model of node 0's that the command line of this machine does not name.

    Its name leads to code that would be run here, so it is not taken from the network.

    Raises:
        RequestRefused: naming the first one.
    """
    for model in models:
        if is_own_model(model) and model not in named_here:
            raise RequestRefused(
                f"node 0 has --model {model}, which the command on node {node} does not name",
                "A machine runs only code that its own command names. To resume a training, give "
                "--model on all machines too.",
            )


def refuse_differences(own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> None:
    """Refuse nodes that differ from node 0 in what must be equal.

    Raises:
        RequestRefused: naming what differs.
    """
    found = [
        _described(name, ours, theirs, node)
        for node, other in enumerate(others, start=1)
        for name, ours, theirs in differences("", dict(own), dict(other))
    ]
    if found:
        more = f"; and {len(found) - MAX_DIFFERENCES} more" if len(found) > MAX_DIFFERENCES else ""
        raise RequestRefused(
            f"the machines are not equal: {'; '.join(found[:MAX_DIFFERENCES])}{more}",
            "All ranks must do equal work: use the same command, versions, variables and data.",
        )


def _described(name: str, ours: object, theirs: object, node: int) -> str:
    """A difference in words. The values of a digest say nothing."""
    if name.endswith(".digest"):
        return f"{MEANINGS[re.split(r'[.[]', name)[0]]} on node {node} are not those on node 0"
    return f"{name} is {ours!r} on node 0 and {theirs!r} on node {node}"
