"""`mgpubench`, and `python -m mgpubench`."""

from __future__ import annotations

import os
import signal
from types import FrameType

EXIT_AFTER_SIGINT = 130


def leave(signum: int, frame: FrameType | None) -> None:
    """End at once: nothing has been started yet, and a traceback would tell nobody anything."""
    os._exit(EXIT_AFTER_SIGINT)


def main() -> None:
    """The entry point of the `mgpubench` command."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:  # and not ignored by whoever started it
        signal.signal(signal.SIGINT, leave)
    from mgpubench.cli import main as run_command

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_command()


if __name__ == "__main__":
    main()
