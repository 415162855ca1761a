"""Signals as a flag: Ctrl-C must never interrupt the writing of a row."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

from mgpubench.errors import Interrupted

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignal:
    """Notes the first stopping signal, and is readable (`fileno`) from then on.

    It raises at once only inside `raising`, around blocking calls that have nothing to lose.
    """

    def __init__(self) -> None:
        self._signum: int | None = None
        self._raising = False
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._writable, False)

    def fileno(self) -> int:
        """A file descriptor to wait on together with others."""
        return self._readable

    def check(self) -> None:
        """Raise Interrupted if a signal has arrived."""
        if self._signum is not None:
            raise Interrupted(self._signum)

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Let a signal interrupt a blocking call."""
        self._raising = True
        try:
            self.check()
            yield
        finally:
            self._raising = False

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self._signum is None:
            self._signum = signum
            os.write(self._writable, b"!")
        if self._raising:
            raise Interrupted(signum)

    @contextlib.contextmanager
    def installed(self) -> Iterator[StopSignal]:
        """Handle the stopping signals, except those that are ignored (by nohup or `&`)."""
        before = {
            signum: signal.signal(signum, self._note)
            for signum in STOPPING_SIGNALS
            if signal.getsignal(signum) is not signal.SIG_IGN
        }
        try:
            yield self
        finally:
            for signum, handler in before.items():
                # After the first signal the program is about to end, and a second Ctrl-C must not
                # kill it before its last message.
                signal.signal(signum, handler if self._signum is None else signal.SIG_IGN)
            os.close(self._readable)
            os.close(self._writable)
