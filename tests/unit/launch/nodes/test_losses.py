"""Lines of loss of several machines become one mean on node 0, whenever they come."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from mgpubench.launch.loss_lines import LossLine, LossReader
from mgpubench.launch.nodes.losses import AHEAD, LossSender, LossSource
from mgpubench.launch.nodes.messages import decode, encode


class Wire:
    """A link whose messages arrive when the test says so."""

    def __init__(self, node: int = 1) -> None:
        self.place = SimpleNamespace(node=node)
        self.sent: dict[str, bytes] = {}
        self.arrived: dict[str, bytes] = {}
        self.wanted: set[str] = set()

    def put(self, key: str, message: object) -> None:
        self.sent[key] = encode(message)

    def want(self, keys: Collection[str]) -> None:
        self.wanted |= set(keys)

    def deliver(self) -> None:
        for key in self.wanted & self.sent.keys():
            self.arrived[key] = self.sent.pop(key)

    def has(self, key: str) -> bool:
        return key in self.arrived

    def read(self, key: str, kind: type) -> Any:
        return decode(self.arrived[key])

    def forget(self, keys: Collection[str]) -> None:
        for key in keys:
            del self.arrived[key]
            self.wanted.discard(key)

    def wait(self, keys: Collection[str], timeout_s: float) -> list[str]:
        self.want(keys)
        self.deliver()
        return [key for key in keys if not self.has(key)]


@pytest.fixture
def wire() -> Any:
    return Wire()


@pytest.fixture
def of_node_1() -> list[LossLine]:
    """Lines that the ranks of node 1 have left since the last look."""
    return []


@pytest.fixture
def sender(wire: Any, of_node_1: list[LossLine]) -> LossSender:
    def take() -> list[LossLine]:
        lines = list(of_node_1)
        of_node_1.clear()
        return lines

    return LossSender(wire, LossReader([take]))


@pytest.fixture
def source(wire: Any) -> LossSource:
    return LossSource(wire, 1)


def test_a_late_part_is_waited_for_and_the_mean_is_over_all_samples(
    wire: Wire, of_node_1: list[LossLine], sender: LossSender, source: LossSource
) -> None:
    own = [[LossLine(10, 3, 6.0)], [LossLine(20, 3, 3.0)], [], []]
    reader = LossReader([lambda: own.pop(0), source.new_lines])
    assert reader.new_lines() == []
    of_node_1.append(LossLine(10, 1, 6.0))
    sender.send(0.5)
    assert reader.new_lines() == []  # it is on its way
    wire.deliver()
    (line,) = reader.new_lines()
    assert (line.step, line.samples, line.loss) == (10, 4, 3.0)
    of_node_1.append(LossLine(20, 1, 1.0))
    sender.finish()
    wire.deliver()
    assert [line.loss for line in reader.new_lines()] == [1.0]
    assert reader.last_step == 20


def test_nothing_is_sent_if_nothing_is_new(wire: Wire, sender: LossSender) -> None:
    sender.send(0.5)
    assert wire.sent == {}
    sender.finish()
    (message,) = map(decode, wire.sent.values())
    assert (message.lines, message.is_last) == ((), True)


def test_many_messages_come_in_their_order_and_are_looked_for_no_longer(
    wire: Wire, of_node_1: list[LossLine], sender: LossSender, source: LossSource
) -> None:
    count = 3 * AHEAD
    for step in range(count):
        of_node_1.append(LossLine(step, 1, 1.0))
        sender.send(0.5)
    found = []
    while len(found) < count:
        found += source.new_lines()
        wire.deliver()
    assert [line.step for line in found] == list(range(count))
    assert wire.arrived == {}
    assert len(wire.wanted) <= AHEAD


def test_node_0_waits_for_the_last_lines(
    wire: Wire, of_node_1: list[LossLine], sender: LossSender, source: LossSource
) -> None:
    for step in (1, 2):
        of_node_1.append(LossLine(step, 1, 1.0))
        sender.send(0.5)
    sender.finish()
    source.await_last()
    assert [line.step for line in source.new_lines()] == [1, 2]
    source.await_last()
    assert wire.sent == {}


def test_node_0_does_not_wait_for_ever(wire: Wire, source: LossSource) -> None:
    source.await_last()
    assert source.new_lines() == []
