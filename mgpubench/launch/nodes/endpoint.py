"""The place where the machines meet: the address and port of node 0."""

from __future__ import annotations

import errno
import ipaddress
import socket

from mgpubench.config.nodes import Nodes
from mgpubench.errors import RequestRefused

BACKLOG = 2048
"""Connections that may wait: all ranks of all machines connect at once."""


def resolve(nodes: Nodes) -> str:
    """The address of node 0.

    Raises:
        RequestRefused: if the name is unknown, or leads node 0 only to itself.
    """
    try:
        found = socket.getaddrinfo(nodes.host, nodes.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise RequestRefused(
            f"--rdzv-endpoint {nodes.endpoint}: the name {nodes.host} does not resolve: "
            f"{getattr(error, 'strerror', None) or error}",
            "Is it spelled right? Otherwise give the address of node 0.",
        ) from error
    address = str(found[0][4][0])
    if nodes.serves and nodes.num_nodes > 1 and _is_loopback(address) and not _is_ip(nodes.host):
        raise RequestRefused(
            f"--rdzv-endpoint {nodes.endpoint}: on this machine {nodes.host} is {address}, which "
            "no other machine can reach",
            "Give the address of node 0 in the network. (127.0.0.1 itself is for a test on one "
            "machine.)",
        )
    return address


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def listen(nodes: Nodes, address: str) -> socket.socket:
    """Node 0's listening socket, on this one address.

    Raises:
        RequestRefused: if the port is taken, or the address is another machine's.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, nodes.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise RequestRefused(
            f"--rdzv-endpoint {nodes.endpoint} cannot be opened on node 0: {error.strerror}",
            _HINTS.get(error.errno or 0, "Choose another port or address of this machine."),
        ) from error
    return listener


_HINTS = {
    errno.EADDRINUSE: "Another program has this port: choose another one, on all machines.",
    errno.EADDRNOTAVAIL: "It must be an address of the machine of --node-rank 0.",
    errno.EACCES: "Choose a port above 1023, on all machines.",
}
