"""The files of a training's checkpoints: their names, and the room that they need."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from mgpubench.errors import RequestRefused
from mgpubench.format import format_size

CHECKPOINTS = "checkpoints"
"""The folder of the checkpoints in the folder of a training."""

NOT_OURS_HINT = "mgpubench train writes checkpoints to the folder checkpoints of its session."

_NAME = re.compile(r"epoch-(\d{4,})\.pt")

_UNFINISHED = re.compile(r"\.epoch-\d{4,}\.pt\.part")
"""What `write_whole` calls a checkpoint until all of it is written."""

SMALL_BYTES = 2**20
"""More than a checkpoint holds besides tensors."""

STATES = {"sgd": 1, "adam": 2, "adamw": 2}
"""Tensors that an optimizer keeps for each parameter."""


def check_is_there(path: Path) -> None:
    """Refuse a path where nothing is, before torch is loaded.

    Raises:
        RequestRefused: if it does not exist.
    """
    if not path.exists():
        raise RequestRefused(f"{path} does not exist", NOT_OURS_HINT)


def file_name(epoch: int) -> str:
    """`epoch-0012.pt`."""
    return f"epoch-{epoch:04}.pt"


def find_checkpoints(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by epoch, oldest first. Other files do not count."""
    found = {}
    for path in folder.glob("epoch-*.pt"):
        match = _NAME.fullmatch(path.name)
        if match and path.name == file_name(int(match.group(1))) and path.is_file():
            found[int(match.group(1))] = path
    return dict(sorted(found.items()))


def latest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint of the last epoch in a folder, if there is one."""
    return next(reversed(find_checkpoints(folder).values()), None)


def best_checkpoint(folder: Path, best_epoch: Callable[[Path], int | None]) -> Path | None:
    """The checkpoint of the best epoch in a folder, or else the latest; None if there is none.

    `best_epoch` reads from a checkpoint which epoch was the best so far. It is asked about the
    latest one, since reading a checkpoint needs torch.
    """
    latest = latest_checkpoint(folder)
    best = best_epoch(latest) if latest else None
    return latest if best is None else find_checkpoints(folder).get(best, latest)


def remove_unfinished(folder: Path) -> tuple[Path, ...]:
    """Remove checkpoints that a killed process left unfinished, and name them.

    Only the process that has locked the training may call this.
    """
    left = [path for path in folder.glob(".epoch-*") if _UNFINISHED.fullmatch(path.name)]
    for path in left:
        path.unlink(missing_ok=True)
    return tuple(left)


def expected_bytes(parameter_bytes: int, optimizer: str) -> int:
    """The size of a checkpoint, at most, from the size of the model's parameters."""
    buffers_bytes = parameter_bytes // 20
    return parameter_bytes * (1 + STATES[optimizer]) + buffers_bytes + SMALL_BYTES


def check_room(folder: Path, checkpoint_bytes: int) -> None:
    """Refuse a disk without room for two more checkpoints. The folder need not exist yet.

    Raises:
        RequestRefused: if the disk has too little room.
    """
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    usage = shutil.disk_usage(nearest)
    # Some file systems do not say how large they are: all is 0.
    if usage.total and usage.free < 2 * checkpoint_bytes:
        raise RequestRefused(
            f"{folder} has no room for checkpoints: {format_size(usage.free)} are free, and two "
            f"checkpoints need {format_size(2 * checkpoint_bytes)}",
            "Make room, or give another folder with --out.",
        )
