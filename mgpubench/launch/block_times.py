"""The times that each rank of a run of collectives reports, size by size, while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mgpubench.launch.events import EventReader, EventWriter

SizeTimes = tuple[int, list[float]]
"""A size in bytes, and the seconds of each of its timed blocks on one rank."""


def _file(folder: Path, rank: int) -> Path:
    return folder / f"blocks-{rank}.jsonl"


class BlockTimesWriter:
    """The worker's side."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._writer = EventWriter(_file(folder, rank))

    def write(self, size_bytes: int, block_times_s: Sequence[float]) -> None:
        """Report the seconds of each timed block of a size on this rank."""
        self._writer.write({"size_bytes": size_bytes, "block_times_s": list(block_times_s)})


class BlockTimesReader:
    """The parent's side."""

    def __init__(self, folder: Path, ranks: Iterable[int], world_size: int) -> None:
        """`ranks` are those that report in `folder`."""
        self._readers = {rank: EventReader(_file(folder, rank)) for rank in ranks}
        self._reported: list[list[SizeTimes]] = [[] for _ in range(world_size)]
        """By rank: the sizes that have not been given out."""

    def add_others(self, by_rank: Sequence[Sequence[SizeTimes]]) -> None:
        """Add what the ranks of other machines have measured."""
        for rank, sizes in enumerate(by_rank):
            if rank not in self._readers:
                self._reported[rank] += sizes

    def new_sizes(self) -> Iterator[tuple[int, list[list[float]]]]:
        """The sizes that all ranks have reported since the last call, with the times by rank."""
        for rank, reader in self._readers.items():
            self._reported[rank] += [
                (event["size_bytes"], event["block_times_s"]) for event in reader.new_events()
            ]
        while all(self._reported):
            of_ranks = [reported.pop(0) for reported in self._reported]
            yield of_ranks[0][0], [times_s for _, times_s in of_ranks]
