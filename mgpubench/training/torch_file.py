"""Reading a file of torch.save that may be damaged, or of another program.

Torch writes a zip file with a checksum for each tensor, and does not check them when it reads: it
would load a damaged tensor without a word. Its older format has no checksums.
"""

from __future__ import annotations

import errno
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from mgpubench.errors import RequestRefused
from mgpubench.format import message_of
from mgpubench.results.checkpoint_files import (
    NOT_OURS_HINT,
    check_is_there,
    find_checkpoints,
    latest_checkpoint,
)

BROKEN = "it is cut off, or its list of entries is broken"

_OBJECT = re.compile(r"GLOBAL ([\w.]+)")
"""How torch names an object that it refuses to make."""


def read_torch_file(path: Path, *, zip_only: bool) -> object:
    """What a file holds, on the CPU. Every checksum is compared. Code is never run.

    Tensors of a zip file are mapped from it, and read when they are used: copy them soon.

    Args:
        path: the file.
        zip_only: refuse torch's older format, which has no checksums.

    Raises:
        RequestRefused: if it cannot be read, is damaged, or holds more than tensors and plain data.
    """
    with _naming_os_errors(path):
        _check_is_file(path)
        with open(path, "rb") as file:
            begin = file.read(2)
        if not begin:
            raise RequestRefused(f"{path} is empty", another_checkpoint(path))
        if begin == b"PK":
            _check_sums(path)
        elif zip_only:
            raise RequestRefused(
                f"{path} is not a checkpoint: it is not in torch's zip format", NOT_OURS_HINT
            )
    return _unpickle(path, mmap=begin == b"PK")


def is_state_dict(document: object) -> bool:
    """True for a dict of tensors by name."""
    return (
        isinstance(document, dict)
        and bool(document)
        and all(isinstance(name, str) for name in document)
        and all(isinstance(tensor, Tensor) for tensor in document.values())
    )


def another_checkpoint(path: Path) -> str:
    """A hint that names another checkpoint beside a damaged one."""
    others = [other for other in find_checkpoints(path.parent).values() if other.name != path.name]
    if others:
        return f"Use another one, such as {others[-1]}."
    return "Copy it again from where it came from, or use another one."


@contextmanager
def _naming_os_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RequestRefused(
            f"{path} cannot be read: {error.strerror or error}", "Check its permissions."
        ) from error


def _check_is_file(path: Path) -> None:
    if path.is_file():
        return
    if path.is_dir():
        latest = latest_checkpoint(path)
        hint = f"Name a file in it, such as {latest}." if latest else NOT_OURS_HINT
        raise RequestRefused(f"{path} is a folder, and not a checkpoint", hint)
    check_is_there(path)
    raise RequestRefused(f"{path} is not a file", NOT_OURS_HINT)


def _check_sums(path: Path) -> None:
    if fault := _find_fault(path):
        raise RequestRefused(f"{path} is damaged: {fault}", another_checkpoint(path))


def _find_fault(path: Path) -> str:
    """What is wrong with a zip file; empty if nothing is."""
    try:
        with zipfile.ZipFile(path) as archive:
            # Torch maps an entry as it lies in the file.
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                return "an entry is compressed, which torch never does"
            name = archive.testzip()
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return BROKEN
    # A broken list of entries can lead zipfile to any place in the file.
    except (zipfile.BadZipFile, ValueError, RuntimeError, EOFError, OverflowError):
        return BROKEN
    return f"{name} does not match its checksum" if name else ""


def _unpickle(path: Path, *, mmap: bool) -> object:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error below says it all
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    # A file of another program can make torch raise anything.
    except Exception as error:
        hint = another_checkpoint(path) if mmap else NOT_OURS_HINT
        raise _refusal(path, message_of(error), hint) from error


def _refusal(path: Path, text: str, hint: str) -> RequestRefused:
    """The refusal of a file, from what torch says about it."""
    if found := _OBJECT.search(text):
        return RequestRefused(
            f"{path} is refused: it holds {found.group(1)}, which could run code",
            "Only tensors, numbers and text are read: "
            "torch.save(model.state_dict(), file) writes no more.",
        )
    return RequestRefused(
        f"{path} is damaged or not a checkpoint: torch cannot read it", hint, text
    )
