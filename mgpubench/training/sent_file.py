"""A file of rank 0 for the ranks on other machines, which have no folder in common with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import torch
import torch.distributed as dist

from mgpubench.training.devices import Part

CHUNK_BYTES = 16 * 2**20


def send_file(part: Part, path: Path, barrier: Callable[[], None]) -> None:
    """Give every machine rank 0's file. All ranks must call it together.

    `path` is where the file is, or is to be, on the machine of this rank. The first rank of each
    other machine writes it there, and then all ranks may read it.
    """
    size = torch.zeros(1, dtype=torch.int64, device=part.device)
    if part.rank == 0:
        size.fill_(path.stat().st_size)
    dist.broadcast(size, src=0)
    file = _open(part, path)
    try:
        for start in range(0, int(size), CHUNK_BYTES):
            _send_chunk(part, file, min(CHUNK_BYTES, int(size) - start))
    finally:
        if file is not None:
            file.close()
    barrier()


def _open(part: Part, path: Path) -> BinaryIO | None:
    """Rank 0's file to read, another machine's to write, or none."""
    if part.rank == 0:
        return path.open("rb")
    firsts = {part.config.ranks_of_node(node).start for node in range(1, part.config.num_nodes)}
    return path.open("wb") if part.rank in firsts else None


def _send_chunk(part: Part, file: BinaryIO | None, size: int) -> None:
    content = bytearray(size)
    if file is not None and part.rank == 0:
        file.readinto(content)  # type: ignore[attr-defined]
    # It shares its memory with the bytes.
    host = torch.frombuffer(content, dtype=torch.uint8)
    chunk = host.to(part.device)
    dist.broadcast(chunk, src=0)
    host.copy_(chunk)
    if file is not None and part.rank != 0:
        file.write(content)
