"""Two agents of one session, on one machine at 127.0.0.1."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.processes import Command

SMOKE = ("run", "--smoke", "--mode", "ddp", "--gpus", 1)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def node_options(rank: int, port: int, num_nodes: int = 2) -> tuple[object, ...]:
    """The options that name a node."""
    endpoint = f"127.0.0.1:{port}"
    return ("--nnodes", num_nodes, "--node-rank", rank, "--rdzv-endpoint", endpoint)


@dataclass(frozen=True)
class Pair:
    """Two nodes, each with a folder of its own."""

    nodes: tuple[Command, Command]

    def codes(self, seconds: float = 90) -> tuple[int, int]:
        """The exit codes of both."""
        first, second = (node.wait(seconds) for node in self.nodes)
        return first, second

    def assert_none_left(self) -> None:
        """Nothing that was seen below them is alive."""
        for node in self.nodes:
            node.assert_none_left()


@contextmanager
def pair_of(
    folder: Path,
    *arguments: object,
    second: tuple[object, ...] | None = None,
    env: dict[str, str] | None = None,
    seconds_env: dict[str, str] | None = None,
    seconds_prefix: tuple[str, ...] = (),
) -> Iterator[Pair]:
    """Start both nodes, and end them at last.

    `second` are the arguments of node 1 if they differ, `seconds_env` its variables, and
    `seconds_prefix` what is written before its command.
    """
    port = free_port()
    commands = []
    try:
        for rank, given in enumerate((arguments, second or arguments)):
            place = folder / f"node{rank}"
            place.mkdir(parents=True, exist_ok=True)
            variables = {**(env or {}), **(seconds_env or {} if rank else {})}
            options = (*given, *node_options(rank, port))
            prefix = seconds_prefix if rank else ()
            commands.append(Command(*options, cwd=place, env=variables, prefix=prefix))
        yield Pair((commands[0], commands[1]))
    finally:
        for command in commands:
            command.kill()
