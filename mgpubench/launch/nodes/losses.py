"""Lines of loss on their way to node 0, beside the training: no rank waits for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from mgpubench.launch.loss_lines import LossLine, LossReader
from mgpubench.launch.nodes.link import Link
from mgpubench.launch.nodes.messages import LossLines, loss_key

AHEAD = 4
"""Messages that node 0 looks for at once. A machine sends two a second at most, and node 0 takes
all that are there twice a second."""
LAST_LINES_S = 10.0
"""For the last ones, after all ranks have ended well."""


@dataclass(slots=True)
class LossSender:
    """The side of every node but the first."""

    link: Link
    reader: LossReader
    """The lines of this machine's ranks."""
    _number: int = field(default=0, init=False)

    def send(self, elapsed_s: float = 0.0) -> None:
        """Send what is new. It is called while the ranks train, with the seconds since then."""
        if lines := self.reader.new_lines():
            self._put(lines, is_last=False)

    def finish(self) -> None:
        """Send what is left, when the ranks have ended."""
        self._put(self.reader.new_lines(), is_last=True)

    def _put(self, lines: list[LossLine], *, is_last: bool) -> None:
        message = LossLines(lines=tuple(lines), is_last=is_last)
        self.link.put(loss_key(self.link.place.node, self._number), message)
        self._number += 1


@dataclass(slots=True)
class LossSource:
    """Node 0's side: the lines of another node."""

    link: Link
    node: int
    _number: int = field(default=0, init=False)
    _waiting: list[LossLine] = field(default_factory=list, init=False)
    _is_over: bool = field(default=False, init=False)

    def new_lines(self) -> list[LossLine]:
        """The lines since the last call."""
        self._take()
        lines, self._waiting = self._waiting, []
        return lines

    def await_last(self) -> None:
        """Wait a little until all lines are here.

        Raises:
            Interrupted: after a signal.
            SessionEnded: if another node has ended the session, or is lost.
        """
        self._take()
        while not self._is_over:
            if self.link.wait([self._next], LAST_LINES_S):
                return
            self._take()

    @property
    def _next(self) -> str:
        return loss_key(self.node, self._number)

    def _take(self) -> None:
        while self.link.has(self._next):
            message = self.link.read(self._next, LossLines)
            self.link.forget([self._next])
            self._waiting += message.lines
            self._is_over = message.is_last
            self._number += 1
        if not self._is_over:
            numbers = range(self._number, self._number + AHEAD)
            self.link.want([loss_key(self.node, number) for number in numbers])
