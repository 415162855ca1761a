"""A file of rank 0 that reaches other machines: what their ranks read; in workers."""

from __future__ import annotations

from pathlib import Path

from mgpubench.config.run_config import RunConfig
from mgpubench.training import sent_file
from mgpubench.training.process_group import process_group
from mgpubench.training.rank import make_part

SOURCE = "source"


def receive(config: RunConfig, rank: int, folder: Path) -> bytes:
    """What this rank finds in the file of its machine, after it was sent in small chunks."""
    sent_file.CHUNK_BYTES = 1000
    part = make_part(config, rank, folder, Path("none"))
    node = next(n for n in range(config.num_nodes) if rank in config.ranks_of_node(n))
    path = folder / (f"received-{node}" if node else SOURCE)
    with process_group(part) as barrier:
        sent_file.send_file(part, path, barrier)
        return path.read_bytes()
