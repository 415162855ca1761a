"""Ranks that misbehave: targets for the supervisor, run in worker processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from mgpubench.config.run_config import RunConfig
from mgpubench.errors import Interrupted


def raises_on_rank_1(config: RunConfig, rank: int, *others: object) -> None:
    """Rank 1 raises. Rank 0 then reports the end of a peer, as gloo does."""
    if rank == 1:
        raise ValueError("the true cause")
    time.sleep(0.3)
    raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer")


def peer_speaks_first(config: RunConfig, rank: int, *others: object) -> None:
    """The error of the peer is on record before the failure itself."""
    if rank == 0:
        raise RuntimeError("Connection reset by peer")
    time.sleep(0.3)
    raise ValueError("the true cause")


def exits_with_0_on_rank_1(config: RunConfig, rank: int, *others: object) -> None:
    """Rank 1 leaves no record, and looks successful."""
    if rank == 1:
        print("last words of rank 1", flush=True)
        os._exit(0)
    time.sleep(60)


def killed_on_rank_1(config: RunConfig, rank: int, *others: object) -> None:
    """Rank 1 is killed; rank 0 raises about its peer before that is noticed."""
    if rank == 1:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("Connection closed by peer")


def hangs(*of_the_run: object) -> None:
    """Never ends, and ignores SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def fails_with_children(
    config: RunConfig, rank: int, runner: str, folder: Path, listing: Path
) -> None:
    """Raises while a process of its own is running, as a loader's worker would be."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (listing.parent / "child.pid").write_text(str(child.pid))
    raise ValueError(f"child {child.pid} is running")


def returns_much(*of_the_run: object) -> Any:
    """More than a pipe holds: a parent that joins before it reads would never end."""
    return list(range(200_000))


def environment(*of_the_run: object) -> dict[str, str]:
    """The environment as a rank sees it."""
    return dict(os.environ)


def runs_out_of_memory(*of_the_run: object) -> None:
    """Raises torch's own error for a refused allocation."""
    import torch

    torch.empty(2**60, dtype=torch.uint8)


class WithoutWords(Exception):
    """An error whose message cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no words for it")


def raises_without_words(*of_the_run: object) -> None:
    raise WithoutWords


def leaves_a_thread(*of_the_run: object) -> int:
    """Returns while one of its threads still runs, for which Python would wait."""
    threading.Thread(target=time.sleep, args=(600,)).start()
    return 7


def raises_beside_a_thread(*of_the_run: object) -> None:
    """The same, but raises."""
    threading.Thread(target=time.sleep, args=(600,)).start()
    raise ValueError("the true cause")


class Odd(Exception):
    """An error whose message cannot be made, for another reason."""

    def __str__(self) -> str:
        raise KeyError("no words for it")


def raises_something_odd(*of_the_run: object) -> None:
    raise Odd


def uses_up_all_files(*of_the_run: object) -> None:
    """Its error cannot be written either, since that needs another file."""
    while True:
        os.open(os.devnull, os.O_RDONLY)


def says_very_much(*of_the_run: object) -> None:
    raise ValueError("x" * 5_000_000)


def takes_stdout_away(*of_the_run: object) -> int:
    sys.stdout = None  # type: ignore[assignment]
    return 7


def raises_ours(*of_the_run: object) -> None:
    raise Interrupted(signal.SIGINT)


def inherited() -> dict[str, object]:
    """What this process has inherited from the fork server."""
    return {
        "cores": os.sched_getaffinity(0),
        "folder": os.getcwd(),
        "warnings as errors": sum(entry[0] == "error" for entry in warnings.filters),
        "start method": multiprocessing.get_start_method(allow_none=True),
    }
