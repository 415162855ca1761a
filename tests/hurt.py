"""Ranks that misbehave: targets for the supervisor, run in worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from mgpubench.config.run_config import RunConfig
from mgpubench.errors import Interrupted


def raises_on_rank_1(config: RunConfig, rank: int, folder: Path, listing: Path) -> None:
    """Rank 1 raises; rank 0 then reports a peer's end, as gloo does."""
    if rank == 1:
        raise ValueError("the true cause")
    time.sleep(0.3)
    raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer")


def peer_speaks_first(config: RunConfig, rank: int, folder: Path, listing: Path) -> None:
    """The echo of a failure is on record before the failure itself."""
    if rank == 0:
        raise RuntimeError("Connection reset by peer")
    time.sleep(0.3)
    raise ValueError("the true cause")


def exits_with_0_on_rank_1(config: RunConfig, rank: int, folder: Path, listing: Path) -> None:
    """Rank 1 goes without a word, and looks successful."""
    if rank == 1:
        print("last words of rank 1", flush=True)
        os._exit(0)
    time.sleep(60)


def killed_on_rank_1(config: RunConfig, rank: int, folder: Path, listing: Path) -> None:
    """Rank 1 is killed; rank 0 raises about its peer before that is noticed."""
    if rank == 1:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("Connection closed by peer")


def hangs(config: RunConfig, rank: int, folder: Path, listing: Path) -> None:
    """Never ends, not even when asked: SIGTERM is ignored."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def fails_with_children(config: RunConfig, rank: int, folder: Path, listing: Path) -> None:
    """Raises while a process of its own is running, as a loader's worker would be."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (listing.parent / "child.pid").write_text(str(child.pid))
    raise ValueError(f"child {child.pid} is running")


def returns_much(config: RunConfig, rank: int, folder: Path, listing: Path) -> Any:
    """More than a pipe holds: a parent that joins before it reads would wait for ever."""
    return list(range(200_000))


def environment(config: RunConfig, rank: int, folder: Path, listing: Path) -> dict[str, str]:
    """The environment as a rank sees it."""
    return dict(os.environ)


def runs_out_of_memory(config: RunConfig, rank: int, folder: Path, listing: Path) -> None:
    """Torch's own words for a refused allocation."""
    import torch

    torch.empty(2**60, dtype=torch.uint8)


class Untellable(Exception):
    """An error that cannot even be told."""

    def __str__(self) -> str:
        raise RuntimeError("no words for it")


def raises_the_untellable(config: RunConfig, rank: int, folder: Path, listing: Path) -> None:
    raise Untellable


def leaves_a_thread(config: RunConfig, rank: int, folder: Path, listing: Path) -> int:
    """Returns while a thread of it goes on, for which Python would wait."""
    threading.Thread(target=time.sleep, args=(600,)).start()
    return 7


def raises_beside_a_thread(config: RunConfig, rank: int, folder: Path, listing: Path) -> None:
    """The same with an error."""
    threading.Thread(target=time.sleep, args=(600,)).start()
    raise ValueError("the true cause")


class Odd(Exception):
    """An error that cannot be told, in another way."""

    def __str__(self) -> str:
        raise KeyError("no words for it")


def raises_something_odd(config: RunConfig, rank: int, folder: Path, listing: Path) -> None:
    raise Odd


def uses_up_all_files(config: RunConfig, rank: int, folder: Path, listing: Path) -> None:
    """Even its error needs a file to be written to."""
    while True:
        os.open(os.devnull, os.O_RDONLY)


def says_very_much(config: RunConfig, rank: int, folder: Path, listing: Path) -> None:
    raise ValueError("x" * 5_000_000)


def takes_stdout_away(config: RunConfig, rank: int, folder: Path, listing: Path) -> int:
    sys.stdout = None  # type: ignore[assignment]
    return 7


def raises_ours(config: RunConfig, rank: int, folder: Path, listing: Path) -> None:
    raise Interrupted(signal.SIGINT)
