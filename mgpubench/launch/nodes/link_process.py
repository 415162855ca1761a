"""The process that talks with torch's store. The parent tells it what to write and to look for.

A call of the store may block for 40 s when the network is down. So it must not happen in the
parent, which can kill this process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from socket import socket
from typing import Any

from mgpubench.launch.nodes.messages import beat_key, is_read_once

CHUNK_BYTES = 4 * 2**20
"""The store resets the connection at 9 MiB."""

MAX_BYTES = 2**30
"""No message of ours is longer. The port is open to others."""

FAST_S = 0.02
"""How often it looks for what the parent waits for."""
SLOW_S = 0.25
"""How often otherwise, and after a wait of `FAST_FOR_S`: a run may be measured meanwhile."""
FAST_FOR_S = 2.0

CALL_TIMEOUT = timedelta(seconds=30)

_NUM_NODES = "nnodes"
_NAME = "node"
_LENGTH_BYTES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where the store is, and who this node is."""

    host: str
    port: int
    node: int
    num_nodes: int
    listener: socket | None
    """Node 0's listening socket, on which it serves the store; None if it is a client too."""
    join_timeout_s: float
    prefix: str = ""
    """Of all our keys, if the store is another program's."""


def talk(place: Place, parent: Connection) -> None:
    """Connect to the store, and serve the parent until it says `close` or goes."""
    try:
        talker = _Talker(_connect(place), place, parent)
        parent.send(("joined",))
        while talker.turn():
            pass
    except EOFError:
        return  # the parent has ended
    # The parent says it to the user: torch has many errors for a connection that is gone.
    except Exception as error:
        parent.send(("lost", str(error).strip().partition("\n")[0]))


def _connect(place: Place) -> Any:
    import torch.distributed

    timeout = timedelta(seconds=place.join_timeout_s)
    make_store: Any = torch.distributed.TCPStore  # type: ignore[attr-defined]
    served = {} if place.listener is None else {"master_listen_fd": place.listener.detach()}
    store = make_store(
        place.host, place.port, None, bool(served), timeout, wait_for_workers=False, **served
    )
    store.set_timeout(CALL_TIMEOUT)
    if place.prefix:
        store = torch.distributed.PrefixStore(place.prefix, store)  # type: ignore[attr-defined]
    if place.node == 0:
        store.set(_NUM_NODES, str(place.num_nodes))
    wanted = int(store.get(_NUM_NODES))
    if wanted != place.num_nodes:
        raise ValueError(f"node 0 has --nnodes {wanted}, and this node {place.num_nodes}")
    name = f"{time.time_ns()}/{id(store)}"
    if store.compare_set(f"{_NAME}/{place.node}", "", name).decode() != name:
        raise ValueError(f"another machine has joined with --node-rank {place.node}")
    return store


@dataclass(slots=True)
class _Talker:
    """One turn after the other: hear the parent, show that we live, look for news."""

    store: Any
    place: Place
    parent: Connection
    wanted: set[str] = field(default_factory=set)
    is_urgent: bool = False
    watched: list[int] = field(default_factory=list)
    """Nodes whose beats the parent wants to know."""
    beats: dict[int, bytes] = field(default_factory=dict)
    num_beats: int = 0
    asked_at_s: float = 0.0

    def turn(self) -> bool:
        """False if the parent has said that it is over."""
        if self.parent.poll(self._interval_s()):
            while self.parent.poll():
                if not self._obey(*self.parent.recv()):
                    return False
        for key in sorted(self.wanted):
            if self.store.check([key]):
                self.wanted.discard(key)
                self.parent.send(("value", key, b"".join(self._parts(key))))
        return True

    def _interval_s(self) -> float:
        is_fresh = time.monotonic() - self.asked_at_s < FAST_FOR_S
        return FAST_S if self.is_urgent and is_fresh else SLOW_S

    def _obey(self, order: str, *args: Any) -> bool:
        if order == "beat":
            self._beat()
        elif order == "put":
            self._put(*args)
        elif order == "watch":
            (self.watched,) = args
        elif order == "want":
            keys, self.is_urgent = args
            self.wanted |= set(keys)
            self.asked_at_s = time.monotonic()
        elif order == "forget":
            self.wanted -= set(args[0])
        return order != "close"

    def _beat(self) -> None:
        """The parent lives, so this node does. And the parent hears who else does."""
        self.num_beats += 1
        self.store.set(beat_key(self.place.node), str(self.num_beats))
        news = []
        for node in self.watched:
            key = beat_key(node)
            beat = self.store.get(key) if self.store.check([key]) else b""
            if beat != self.beats.get(node):
                self.beats[node] = beat
                news.append(node)
        self.parent.send(("alive", news))

    def _put(self, key: str, content: bytes) -> None:
        # The first part last: whoever sees it finds the others.
        for number, start in reversed(list(enumerate(range(0, max(1, len(content)), CHUNK_BYTES)))):
            part = content[start : start + CHUNK_BYTES]
            length = len(content).to_bytes(_LENGTH_BYTES) if number == 0 else b""
            self.store.set(_part_key(key, number), length + part)

    def _parts(self, key: str) -> Iterator[bytes]:
        """The parts of a message; nothing, which the reader refuses, if it is not one of ours."""
        first = self.store.get(key)
        length = int.from_bytes(first[:_LENGTH_BYTES])
        if length > MAX_BYTES:
            return
        keys = [_part_key(key, number) for number in range(max(1, -(-length // CHUNK_BYTES)))]
        if not self.store.check(keys):  # it would wait for them
            return
        yield first[_LENGTH_BYTES:]
        yield from map(self.store.get, keys[1:])
        if is_read_once(key):
            # The store would keep the records of all runs in memory.
            for part in keys:
                self.store.delete_key(part)


def _part_key(key: str, number: int) -> str:
    return f"{key}#{number}" if number else key
