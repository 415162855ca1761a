"""The table of who gets what of a batch."""

from __future__ import annotations

from collections.abc import Sequence

from mgpubench.report.columns import Column
from mgpubench.report.console import open_console
from mgpubench.report.tables import print_table
from mgpubench.results.shard import Shard

Line = tuple[str, int, Shard]
"""The configuration, the samples of its whole batch, and one part of it."""


def print_shards(lines: Sequence[Line]) -> None:
    """Print a line for each replica or rank."""
    columns = [
        Column("run", [label for label, _, _ in lines], is_number=False),
        Column("rank", [str(shard.rank) for _, _, shard in lines]),
        Column("device", [shard.device for _, _, shard in lines], is_number=False),
        Column("samples", [f"{shard.samples} of {total}" for _, total, shard in lines]),
        Column("shape", [" x ".join(map(str, shard.shape)) for _, _, shard in lines]),
    ]
    print_table(columns, open_console())
