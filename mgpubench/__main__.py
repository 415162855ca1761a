"""`mgpubench`, and `python -m mgpubench`."""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType

EXIT_AFTER_SIGINT = 130


def leave(signum: int, frame: FrameType | None) -> None:
    """End at once, without a traceback: nothing has been started.

    `mgpubench run` installs its own handler as soon as it has something to lose.
    """
    with contextlib.suppress(OSError):
        os.write(2, b"error: interrupted by SIGINT\n")
    os._exit(EXIT_AFTER_SIGINT)


def main() -> None:
    """The entry point of the `mgpubench` command."""
    # Not if the caller has it ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    from mgpubench.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
