"""Times that ranks report while they run."""

from __future__ import annotations

from pathlib import Path

from mgpubench.launch.block_times import BlockTimesReader, BlockTimesWriter


def test_a_size_is_given_out_once_when_all_ranks_have_reported_it(tmp_path: Path) -> None:
    first, second = (BlockTimesWriter(tmp_path, rank) for rank in range(2))
    reader = BlockTimesReader(tmp_path, range(2), 2)
    assert list(reader.new_sizes()) == []
    first.write(4096, [1.0, 2.0])
    first.write(8192, [3.0])
    assert list(reader.new_sizes()) == []
    second.write(4096, [1.5, 2.5])
    assert list(reader.new_sizes()) == [(4096, [[1.0, 2.0], [1.5, 2.5]])]
    second.write(8192, [4.0])
    assert list(reader.new_sizes()) == [(8192, [[3.0], [4.0]])]
    assert list(reader.new_sizes()) == []


def test_the_times_of_other_machines_are_added(tmp_path: Path) -> None:
    """Rank 0 reports here, and rank 1 elsewhere; what is already known is not taken twice."""
    reader = BlockTimesReader(tmp_path, range(1), 2)
    own = (4096, [1.0])
    BlockTimesWriter(tmp_path, 0).write(*own)
    assert list(reader.new_sizes()) == []
    reader.add_others([[own], [(4096, [2.0])]])
    assert list(reader.new_sizes()) == [(4096, [[1.0], [2.0]])]
    assert list(reader.new_sizes()) == []
