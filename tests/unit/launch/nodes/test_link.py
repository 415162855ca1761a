"""Who still lives, and what a node is told: the parent's side of the link, with a pipe for the
link process."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mgpubench.errors import Interrupted, SessionEnded
from mgpubench.launch.nodes import link as link_module
from mgpubench.launch.nodes import link_process as link_process_module
from mgpubench.launch.nodes.link import Link
from mgpubench.launch.nodes.link_process import Place
from mgpubench.launch.nodes.messages import END, End, Hello, encode
from mgpubench.launch.signals import StopSignal
from tests.processes import wait_until

PLACE = Place(host="10.0.0.1", port=29500, node=0, num_nodes=3, listener=None, join_timeout_s=5)


class Process:
    """What the link process would do, step by step."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.orders: list[tuple[Any, ...]] = []

    def give(self, key: str, message: object) -> None:
        self.connection.send(("value", key, encode(message)))

    def hear(self, seconds: float = 5) -> list[tuple[Any, ...]]:
        """Every order so far; there is one at least."""
        assert self.connection.poll(seconds)
        while self.connection.poll(0.05):
            self.orders.append(self.connection.recv())
        return self.orders


@pytest.fixture
def linked() -> Iterator[tuple[Link, Process]]:
    ours, theirs = Pipe()
    with StopSignal().installed() as stop, ours, theirs:
        link = Link(ours, PLACE, stop)
        yield link, Process(theirs)
        link.close()


def test_a_message_is_put_and_beats_follow(linked: tuple[Link, Process]) -> None:
    link, process = linked
    link.put("hello/0", {"a": 1})
    wait_until(lambda: process.hear().count(("beat",)) >= 2, 10, "two beats")
    assert ("put", "hello/0", encode({"a": 1})) in process.orders


def test_waiting_ends_when_all_messages_are_there(linked: tuple[Link, Process]) -> None:
    link, process = linked
    threading.Timer(0.1, lambda: process.give("ack/1", "one")).start()
    threading.Timer(0.2, lambda: process.give("ack/2", "two")).start()
    assert link.wait(["ack/1", "ack/2"], 5) == []
    assert (link.read("ack/1", str), link.read("ack/2", str)) == ("one", "two")
    assert ("want", ["ack/1", "ack/2"], True) in process.hear()


def test_what_is_missing_in_time_is_named(linked: tuple[Link, Process]) -> None:
    link, process = linked
    process.give("hello/1", "one")
    assert link.wait(["hello/1", "hello/2"], 0.3) == ["hello/2"]


def test_a_node_without_a_sign_of_life_is_lost(
    linked: tuple[Link, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    link, process = linked
    monkeypatch.setattr(link_module, "PATIENCE_S", 1.0)
    process.connection.send(("joined",))
    link.watch([1, 2])
    until_s = time.monotonic() + 2.5
    while time.monotonic() < until_s:
        process.connection.send(("alive", [1]))
        time.sleep(0.1)
    assert error_of(link) == "lost node 2: no sign of life for 1 s"


def test_a_store_that_does_not_answer_is_node_0(
    linked: tuple[Link, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    link, process = linked
    monkeypatch.setattr(link_module, "PATIENCE_S", 1.0)
    process.connection.send(("joined",))
    wait_until(lambda: link._lost, 10, "the loss")
    assert error_of(link) == "lost node 0 at 10.0.0.1:29500: no answer for 1 s"


def test_before_joining_nobody_is_lost(
    linked: tuple[Link, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    link, _ = linked
    monkeypatch.setattr(link_module, "PATIENCE_S", 0.2)
    time.sleep(1.2)
    link.check()


def test_an_end_of_the_link_process_is_said(linked: tuple[Link, Process]) -> None:
    link, process = linked
    process.connection.send(("joined",))
    process.connection.close()
    wait_until(lambda: link._lost, 10, "the loss")
    assert error_of(link) == "the process that talks with the other machines ended"


def test_the_reason_of_a_lost_connection_is_said(linked: tuple[Link, Process]) -> None:
    link, process = linked
    process.connection.send(("lost", "timed out"))
    wait_until(lambda: link._lost, 10, "the loss")
    assert error_of(link) == "no connection to node 0 at 10.0.0.1:29500: timed out"


def error_of(link: Link) -> str:
    with pytest.raises(SessionEnded) as caught:
        link.check()
    assert caught.value.exit_code == 1
    assert caught.value.hint
    return caught.value.message


def test_an_end_by_another_node_is_raised_with_its_code(linked: tuple[Link, Process]) -> None:
    link, process = linked
    process.give(END, End(node=2, reason="no images", hint="look", exit_code=2))
    wait_until(lambda: link.has(END), 5, "the end")
    with pytest.raises(SessionEnded, match="node 2 has ended the session: no images") as caught:
        link.check()
    assert (caught.value.exit_code, caught.value.hint) == (2, "look")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "EOFError: Ran out of input"),
        (b"\xff", r"invalid load key, '\xff'"),
        (encode(5), "it is int, and not Hello"),
        (encode(None), "it is NoneType, and not Hello"),
    ],
)
def test_what_another_program_sends_is_refused(
    linked: tuple[Link, Process], content: bytes, reason: str
) -> None:
    link, process = linked
    process.connection.send(("value", "hello/1", content))
    assert link.wait(["hello/1"], 5) == []
    words = f"what was sent as hello/1 is no message of mgpubench ({reason})"
    with pytest.raises(SessionEnded, match=re.escape(words)):
        link.read("hello/1", Hello)


@pytest.mark.parametrize("length", [2**63, 2 * link_process_module.CHUNK_BYTES])
def test_a_length_that_others_have_written_is_not_believed(length: int) -> None:
    """Neither for a list of so many parts, nor for a wait until they come."""
    first = length.to_bytes(8) + b"content"
    store = SimpleNamespace(get=lambda key: first, check=lambda keys: keys == ["hello/1"])
    talker = link_process_module._Talker(store, PLACE, cast(Connection, None))
    assert list(talker._parts("hello/1")) == []


def test_an_end_counts_more_than_the_connection_that_ends_with_it(
    linked: tuple[Link, Process],
) -> None:
    link, process = linked
    process.give(END, End(node=0, reason="", exit_code=0))
    process.connection.send(("lost", "closed"))
    wait_until(lambda: link._lost, 5, "the loss")
    link.check()
    assert link.is_done
    assert link.wait(["cmd/7"]) == ["cmd/7"]


def test_a_signal_here_comes_first(
    linked: tuple[Link, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    link, _ = linked

    def interrupt() -> None:
        raise Interrupted(2)

    monkeypatch.setattr(link._stop, "check", interrupt)
    with pytest.raises(Interrupted):
        link.wait(["cmd/0"])


def test_what_is_forgotten_is_looked_for_no_longer(linked: tuple[Link, Process]) -> None:
    link, process = linked
    process.give("cmd/0", 1)
    wait_until(lambda: link.has("cmd/0"), 5, "the command")
    link.forget(["cmd/0"])
    assert not link.has("cmd/0")
    assert ("forget", ["cmd/0"]) in process.hear()
