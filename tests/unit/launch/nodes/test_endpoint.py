"""Where the machines meet, and which places are refused."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from mgpubench.config.nodes import Nodes
from mgpubench.errors import RequestRefused
from mgpubench.launch.nodes.endpoint import listen, resolve


def nodes(host: str = "127.0.0.1", port: int = 29500, rank: int = 0, count: int = 2) -> Nodes:
    return Nodes(num_nodes=count, node_rank=rank, host=host, port=port)


def name_leads_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)


def test_an_address_stays_as_it_is() -> None:
    assert resolve(nodes("127.0.0.1")) == "127.0.0.1"


def test_a_name_becomes_its_first_address(monkeypatch: pytest.MonkeyPatch) -> None:
    name_leads_to(monkeypatch, "10.0.0.7", "10.0.0.8")
    assert resolve(nodes("first")) == "10.0.0.7"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "::1"])
def test_a_name_that_leads_node_0_to_itself_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    name_leads_to(monkeypatch, address)
    with pytest.raises(RequestRefused, match=f"on this machine first is {address}") as caught:
        resolve(nodes("first"))
    assert "Give the address of node 0" in caught.value.hint


def test_such_a_name_is_accepted_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    name_leads_to(monkeypatch, "127.0.1.1")
    assert resolve(nodes("first", rank=1)) == "127.0.1.1"


def test_an_unknown_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(RequestRefused, match="the name first does not resolve: Name or service"):
        resolve(nodes("first"))


def test_node_0_listens_on_this_address_only() -> None:
    with listen(nodes(port=free_port()), "127.0.0.1") as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = nodes(port=taken.getsockname()[1])
        with pytest.raises(RequestRefused, match="Address already in use") as caught:
            listen(place, "127.0.0.1")
    assert "another one, on all machines" in caught.value.hint


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(RequestRefused, match="cannot be opened on node 0") as caught:
        listen(nodes("192.0.2.1", free_port()), "192.0.2.1")
    assert caught.value.hint == "It must be an address of the machine of --node-rank 0."


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
