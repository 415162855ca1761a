"""The parent's side of the link process: messages to and from other nodes, and who still lives."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import threading
import time
from collections.abc import Collection, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from mgpubench.errors import SessionEnded
from mgpubench.format import gist
from mgpubench.launch.nodes.link_process import Place
from mgpubench.launch.nodes.messages import END, End, decode, encode
from mgpubench.launch.processes import end_groups
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor

T = TypeVar("T")

BEAT_S = 0.5
PATIENCE_S = 10.0
"""A node is lost after so long without a sign of life."""
SUSPENDED_S = 5.0
"""A gap in our own beats that means that this process itself was stopped meanwhile."""
LAST_WORDS_S = 2.0
"""At the end of a session, for the others to read why."""

TALK = "mgpubench.launch.nodes.link_process:talk"


class Link:
    """Messages to and from the other nodes. Use `open_link`.

    Two threads serve the pipe, so that the main thread never blocks: neither when it writes, nor
    when it does something else for long while others want to know that it lives.
    """

    def __init__(self, connection: Connection, place: Place, stop: StopSignal) -> None:
        self.place = place
        self._stop = stop
        self._connection = connection
        self._outbox: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._values: dict[str, bytes] = {}
        self._marks: dict[int, float] = {}
        """When each watched node was last seen to live."""
        self._answered_at_s = time.monotonic()
        self._lost = ""
        """Why the session cannot go on; empty if it can."""
        self._has_joined = False
        self._news, self._news_written = os.pipe()
        os.set_blocking(self._news, False)
        for serve in (self._send, self._receive):
            threading.Thread(target=serve, name="nodes", daemon=True).start()
        self.want([END])

    def put(self, key: str, message: object) -> None:
        """Write a message, soon."""
        self._outbox.put(("put", key, encode(message)))

    def want(self, keys: Collection[str], *, is_urgent: bool = False) -> None:
        """Look for messages from now on, often if they are urgent."""
        missing = [key for key in keys if key not in self._values]
        self._outbox.put(("want", missing, is_urgent))

    def forget(self, keys: Collection[str]) -> None:
        """Look for messages no longer."""
        self._outbox.put(("forget", list(keys)))
        for key in keys:
            self._values.pop(key, None)

    def has(self, key: str) -> bool:
        """True if a message that was wanted is there."""
        return key in self._values

    def read(self, key: str, kind: type[T]) -> T:
        """A message that is there.

        Raises:
            SessionEnded: if it is not of this type, so that it is not from mgpubench.
        """
        try:
            message = decode(self._values[key])
        except pickle.UnpicklingError as error:
            raise _foreign(key, gist(str(error))) from error
        if not isinstance(message, kind):
            raise _foreign(key, f"it is {type(message).__name__}, and not {kind.__name__}")
        return message

    def watch(self, nodes: Collection[int]) -> None:
        """Judge from now on whether these nodes live."""
        now_s = time.monotonic()
        self._marks = dict.fromkeys(nodes, now_s)
        self._outbox.put(("watch", list(nodes)))

    def check(self) -> None:
        """Raise if the session is over.

        Raises:
            Interrupted: after a signal.
            SessionEnded: if another node has ended it, or is lost.
        """
        self._stop.check()
        if self.has(END) and not self.is_done:
            raise _ended(self.read(END, End))
        if self._lost and not self.is_done:
            raise SessionEnded(self._lost, _HINTS[self._has_joined])

    @property
    def is_done(self) -> bool:
        """True if node 0 has said that everything is done."""
        return self.has(END) and not self.read(END, End).reason

    def wait(self, keys: Collection[str], timeout_s: float | None = None) -> list[str]:
        """Wait for messages. Returns those that are missing when time or session is over.

        Raises:
            Interrupted: after a signal.
            SessionEnded: if another node has ended the session, or is lost.
        """
        self.want(keys, is_urgent=True)
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while missing := [key for key in keys if not self.has(key)]:
            self.check()
            is_late = until_s is not None and time.monotonic() >= until_s
            if is_late or self.is_done:
                return missing
            self._await_news(until_s)
        return []

    def wait_to_join(self) -> None:
        """Wait until there is a connection to node 0.

        Raises:
            SessionEnded: if there is none.
        """
        while not self._has_joined:
            self.check()
            self._await_news(None)

    def last_words(self, keys: Collection[str]) -> None:
        """Wait a little for the last messages of the others, even if the session has failed."""
        self.want(keys, is_urgent=True)
        until_s = time.monotonic() + LAST_WORDS_S
        while time.monotonic() < until_s and not self._lost:
            if all(map(self.has, keys)) and self._outbox.empty():
                return
            wait([self._news], timeout=BEAT_S / 10)
            self._drain_news()

    def _await_news(self, until_s: float | None) -> None:
        left_s = BEAT_S if until_s is None else max(0.0, min(BEAT_S, until_s - time.monotonic()))
        wait([self._news, self._stop.fileno()], timeout=left_s)
        self._drain_news()

    def _drain_news(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._news, 4096)

    def _send(self) -> None:
        """A thread: sends what is in the outbox, and otherwise a beat."""
        with contextlib.suppress(OSError, ValueError):  # the other end is gone: `_receive` says so
            beat_at_s = 0.0
            while True:
                order: tuple[Any, ...] = ()
                with contextlib.suppress(queue.Empty):
                    order = self._outbox.get(timeout=BEAT_S)
                if order:
                    self._connection.send(order)
                if order == ("close",):
                    return
                if time.monotonic() - beat_at_s >= BEAT_S:
                    beat_at_s = time.monotonic()
                    self._connection.send(("beat",))

    def _receive(self) -> None:
        """A thread: takes what comes, and judges who lives."""
        try:
            turned_at_s = time.monotonic()
            while not self._lost:
                if wait([self._connection], timeout=BEAT_S):
                    self._take(*self._connection.recv())
                now_s = time.monotonic()
                if now_s - turned_at_s > SUSPENDED_S:
                    self._forgive(now_s)
                turned_at_s = now_s
                self._judge(now_s)
        except (EOFError, OSError):
            self._lose(f"the process that talks with the other machines ended{self._unseen}")

    def _take(self, what: str, *args: Any) -> None:
        now_s = time.monotonic()
        if what == "alive":
            self._answered_at_s = now_s
            for node in args[0]:
                self._marks[node] = now_s
            return
        if what == "value":
            self._values[args[0]] = args[1]
        elif what == "joined":
            self._answered_at_s = now_s
            self._has_joined = True
        elif what == "lost":
            self._lose(f"{self._other_side}: {args[0]}")
        self._tell_main()

    def _judge(self, now_s: float) -> None:
        silent = [node for node, at_s in self._marks.items() if now_s - at_s > PATIENCE_S]
        if silent:
            self._lose(f"lost node {silent[0]}: no sign of life for {PATIENCE_S:.0f} s")
        if self._has_joined and now_s - self._answered_at_s > PATIENCE_S:
            self._lose(f"{self._other_side}: no answer for {PATIENCE_S:.0f} s")

    def _forgive(self, now_s: float) -> None:
        """This process was stopped, and has heard nothing: start counting again."""
        self._answered_at_s = now_s
        self._marks = dict.fromkeys(self._marks, now_s)

    @property
    def _other_side(self) -> str:
        if not self._has_joined:
            return f"no connection to node 0 at {self.place.host}:{self.place.port}"
        return f"lost node 0 at {self.place.host}:{self.place.port}"

    @property
    def _unseen(self) -> str:
        return "" if self._has_joined else " before it had joined them"

    def _lose(self, reason: str) -> None:
        self._lost = self._lost or reason
        self._tell_main()

    def _tell_main(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._news_written, b"!")

    def close(self) -> bool:
        """Let the link process end by itself. False if it no longer can."""
        self._outbox.put(("close",))
        return not self._lost


_HINTS = {
    False: "Is the same command started on node 0, with --node-rank 0, and its port open?",
    True: "The log of that machine may say more.",
}
"""What to do about a lost connection, by whether there was one."""


def _foreign(key: str, reason: str) -> SessionEnded:
    return SessionEnded(
        f"what was sent as {key} is no message of mgpubench ({reason})",
        "Does another program use the port of --rdzv-endpoint? Choose another one.",
    )


def _ended(end: End) -> SessionEnded:
    return SessionEnded(
        f"node {end.node} has ended the session: {end.reason}",
        end.hint,
        exit_code=end.exit_code,
        was_interrupted=end.was_interrupted,
    )


@contextlib.contextmanager
def open_link(supervisor: Supervisor, place: Place, stop: StopSignal) -> Iterator[Link]:
    """A link to the other nodes, through a process of a supervisor."""
    ours, theirs = Pipe()
    with ours:
        with theirs:
            worker = supervisor.start_beside(TALK, place, theirs)
        if place.listener is not None:
            place.listener.close()
        link = Link(ours, place, stop)
        try:
            yield link
        finally:
            if link.close():
                wait([worker.process.sentinel], timeout=LAST_WORDS_S)
            end_groups([worker.process])
