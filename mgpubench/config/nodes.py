"""The machines of a session on several, as a person names them; checked without the network."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from mgpubench.config.types import MAX_TIMEOUT_S
from mgpubench.errors import RequestRefused

MAX_NODES = 1024
DEFAULT_PORT = 29500
"""Torchrun's own, if the endpoint names none."""
DEFAULT_JOIN_TIMEOUT_S = 600.0

EXAMPLE = (
    "On each machine: --nnodes 2 --node-rank 0 (1 on the other) --rdzv-endpoint HOST:PORT, "
    "where HOST is the machine of node rank 0."
)

_ENDPOINT = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:]+))(?::(\d+))?")
"""`host:port`, `host`, or an IPv6 address in brackets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """The machines of a session, and which of them this one is."""

    num_nodes: int
    node_rank: int
    host: str
    """Where node 0 is: a name or an address."""
    port: int
    join_timeout_s: float = DEFAULT_JOIN_TIMEOUT_S
    """How long the machines wait for each other."""
    store: str = ""
    """Prefix of our keys in the store of the program that has started us; empty: node 0 serves."""

    @property
    def serves(self) -> bool:
        """True if this machine serves the store through which all of them speak."""
        return self.is_first and not self.store

    def __post_init__(self) -> None:
        """Refuse what is impossible."""
        if not 1 <= self.num_nodes <= MAX_NODES:
            raise RequestRefused(
                f"--nnodes is {self.num_nodes}, and must be from 1 to {MAX_NODES}", EXAMPLE
            )
        if not 0 <= self.node_rank < self.num_nodes:
            raise RequestRefused(
                f"--node-rank is {self.node_rank}, and with --nnodes {self.num_nodes} must be from "
                f"0 to {self.num_nodes - 1}",
                EXAMPLE,
            )
        if not 1 <= self.port <= 65535:
            raise RequestRefused(
                f"--rdzv-endpoint has the port {self.port}, and must have one from 1 to 65535"
            )
        if not 0 < self.join_timeout_s <= MAX_TIMEOUT_S or math.isnan(self.join_timeout_s):
            raise RequestRefused(
                f"--join-timeout is {self.join_timeout_s:g}, and must be above 0 and at most "
                f"{MAX_TIMEOUT_S:.0f} seconds"
            )

    @property
    def is_first(self) -> bool:
        """True on node 0, which makes the plan and writes the results."""
        return self.node_rank == 0

    @property
    def endpoint(self) -> str:
        """The place of node 0 in messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_nodes(
    num_nodes: int | None,
    node_rank: int | None,
    endpoint: str | None,
    join_timeout_s: float | None,
) -> Nodes | None:
    """The machines that the options name; None if they name none.

    Raises:
        RequestRefused: if an option is missing, or has an impossible value.
    """
    given = {"--nnodes": num_nodes, "--node-rank": node_rank, "--rdzv-endpoint": endpoint}
    missing = [name for name, value in given.items() if value is None]
    if num_nodes is None or node_rank is None or endpoint is None:
        if len(missing) == len(given) and join_timeout_s is None:
            return None
        raise RequestRefused(f"{', '.join(missing)} missing for several machines", EXAMPLE)
    host, port = parse_endpoint(endpoint)
    timeout_s = DEFAULT_JOIN_TIMEOUT_S if join_timeout_s is None else join_timeout_s
    return Nodes(
        num_nodes=num_nodes,
        node_rank=node_rank,
        host=host,
        port=port,
        join_timeout_s=timeout_s,
    )


def parse_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port of an endpoint.

    Raises:
        RequestRefused: if it is not one.
    """
    match = _ENDPOINT.fullmatch(endpoint.strip())
    if not match:
        raise RequestRefused(f"--rdzv-endpoint {endpoint!r} is not HOST:PORT", EXAMPLE)
    address, name, port = match.groups()
    return address or name, int(port or DEFAULT_PORT)
