"""Every error that a user can meet, with the exit code it ends the program with.

BenchError                what and where, a hint what to do next, details for --verbose
  RequestRefused     2    refused before anything was started
  ResultsUnreadable  2    a result file that cannot be used at all
  NoUsableResults    1    readable results, but nothing in them to compare
  TorchUnavailable   1    torch cannot be imported
  RunFailed          1    a worker process failed; `cause` names the rank
  SessionEnded     1, 2   another machine is lost, or has ended the session
  Interrupted    128+n    signal n ended the program
"""

from __future__ import annotations

import signal


class BenchError(Exception):
    """An error that the user can fix: one line says what, and a hint says what to do next."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "", details: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details


class RequestRefused(BenchError):
    """The request is impossible or contradictory; nothing was started."""

    exit_code = 2


class ResultsUnreadable(BenchError):
    """A result file is missing, or cannot be read as one."""

    exit_code = 2


class NoUsableResults(BenchError):
    """The result files are readable, but hold no run that succeeded."""


class TorchUnavailable(BenchError):
    """Torch (or torchvision) cannot be imported."""


class RunFailed(BenchError):
    """A run ended without a measurement. `details` holds the failing rank's own traceback."""


class SessionEnded(BenchError):
    """A session on several machines cannot go on: one is lost, or has ended it."""

    def __init__(
        self, message: str, hint: str = "", *, exit_code: int = 1, was_interrupted: bool = False
    ) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code
        self.was_interrupted = was_interrupted
        """True if a signal on another machine asked for it."""


class Interrupted(BenchError):
    """A signal asked the program to end."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum
        self.exit_code = 128 + signum

    def __reduce__(self) -> tuple[type[Interrupted], tuple[int]]:
        """Pickle it by its signal, so that it can cross process borders."""
        return Interrupted, (self.signum,)
