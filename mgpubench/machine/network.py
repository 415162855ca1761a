"""The network interfaces of the machine."""

from __future__ import annotations

import socket

import psutil


def interface_to(address: str, port: int) -> str:
    """The name of the interface by which this machine reaches an address; empty if unknown."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, port))  # chooses a route, and sends nothing
        except OSError:
            return ""
        own = probe.getsockname()[0]
    return interface_of(own)


def interface_of(address: str) -> str:
    """The name of the interface that has an address; empty if none has it."""
    for name, addresses in psutil.net_if_addrs().items():
        # A link-local address carries the interface behind a percent sign.
        if any(each.address.partition("%")[0] == address.partition("%")[0] for each in addresses):
            return str(name)
    return ""
