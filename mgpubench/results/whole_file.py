"""Files that appear whole or not at all: written under another name, then renamed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from mgpubench.errors import RequestRefused


def check_new_file(path: Path) -> None:
    """Refuse a file that exists already, or whose folder does not.

    Raises:
        RequestRefused: naming which of the two.
    """
    if os.path.lexists(path):
        raise RequestRefused(f"{path} exists already", "Name another file.")
    if not path.parent.is_dir():
        raise RequestRefused(
            f"{path} cannot be written: {path.parent} is not a folder",
            "Make the folder, or name a file in another one.",
        )


@contextmanager
def write_whole(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Give a file to write to, which replaces `path` at the end.

    A reader never sees half of it. After an error `path` is as it was. `durable` means that it also
    survives a power failure. A process that is killed leaves the other name behind.
    """
    unfinished = path.with_name(f".{path.name}.part")
    try:
        with open(unfinished, "wb") as file:
            yield file
            if durable:
                sync_file(file)
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_file(file: BinaryIO | TextIO) -> None:
    """Bring to the disk what was written to a file."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: those of new files, and those that were removed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot do this
            raise
    finally:
        os.close(descriptor)
