"""The machines of a session, as the options name them."""

from __future__ import annotations

import pytest

from mgpubench.config.nodes import DEFAULT_JOIN_TIMEOUT_S, Nodes, parse_nodes
from mgpubench.errors import RequestRefused


def refusal(
    num_nodes: int | None = 2,
    node_rank: int | None = 0,
    endpoint: str | None = "host:29500",
    join_timeout_s: float | None = None,
) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        parse_nodes(num_nodes, node_rank, endpoint, join_timeout_s)
    return caught.value


def test_without_options_there_is_one_machine() -> None:
    assert parse_nodes(None, None, None, None) is None


def test_all_options_together_name_a_node() -> None:
    assert parse_nodes(2, 1, "host:29501", 5.0) == Nodes(
        num_nodes=2, node_rank=1, host="host", port=29501, join_timeout_s=5.0
    )


@pytest.mark.parametrize(
    ("endpoint", "host", "port", "shown"),
    [
        ("host", "host", 29500, "host:29500"),
        (" 10.0.0.1:1 ", "10.0.0.1", 1, "10.0.0.1:1"),
        ("[fe80::1]:80", "fe80::1", 80, "[fe80::1]:80"),
    ],
)
def test_an_endpoint_is_a_host_and_a_port(endpoint: str, host: str, port: int, shown: str) -> None:
    nodes = parse_nodes(2, 0, endpoint, None)
    assert nodes is not None
    assert (nodes.host, nodes.port, nodes.endpoint) == (host, port, shown)
    assert nodes.join_timeout_s == DEFAULT_JOIN_TIMEOUT_S


@pytest.mark.parametrize("endpoint", ["", ":29500", "a:b", "a:1:2", "::1", "[::1", "host:-1"])
def test_other_endpoints_are_refused(endpoint: str) -> None:
    assert "is not HOST:PORT" in refusal(endpoint=endpoint).message


def test_missing_options_are_named() -> None:
    assert refusal(node_rank=None).message == "--node-rank missing for several machines"
    error = refusal(num_nodes=None, endpoint=None)
    assert error.message == "--nnodes, --rdzv-endpoint missing for several machines"
    assert "--nnodes 2 --node-rank 0" in error.hint


def test_a_join_timeout_alone_is_refused() -> None:
    error = refusal(num_nodes=None, node_rank=None, endpoint=None, join_timeout_s=5.0)
    assert "--nnodes, --node-rank, --rdzv-endpoint missing" in error.message


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_nodes": 0}, "--nnodes is 0"),
        ({"num_nodes": 1025}, "--nnodes is 1025"),
        ({"node_rank": 2}, "--node-rank is 2, and with --nnodes 2 must be from 0 to 1"),
        ({"node_rank": -1}, "--node-rank is -1"),
        ({"endpoint": "host:0"}, "port 0"),
        ({"endpoint": "host:65536"}, "port 65536"),
        ({"join_timeout_s": 0.0}, "--join-timeout is 0"),
        ({"join_timeout_s": float("nan")}, "--join-timeout is nan"),
    ],
    ids=str,
)
def test_impossible_values_are_refused(options: dict[str, object], says: str) -> None:
    assert says in refusal(**options).message  # type: ignore[arg-type]
