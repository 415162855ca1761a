"""Lines of loss, which each rank leaves in a mapped file for the parent to read at any time."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpubench.errors import RunFailed

CAPACITY = 4096
"""Lines that a file holds. The parent reads twice a second, and a line that is not read is lost
only after so many others."""

_COUNT = struct.Struct("=q")
"""Lines written so far."""
_LINE = struct.Struct("=qqd")
_SIZE = _COUNT.size + CAPACITY * _LINE.size


@dataclass(frozen=True, slots=True)
class LossLine:
    """The loss over some steps."""

    step: int
    """The last of these steps, counted from 1."""
    samples: int
    loss_sum: float
    """Sum over the samples."""

    @property
    def loss(self) -> float:
        """Mean over the samples."""
        return self.loss_sum / self.samples


def loss_not_finite(epoch: int, loss: float) -> RunFailed:
    """The end of a training whose loss is infinite or not a number in an epoch, counted from 1."""
    return RunFailed(
        f"the loss of epoch {epoch} is {loss}",
        "Begin a new training with a smaller --lr or with --clip-grad-norm, from the last "
        "checkpoint if you like: --resume CHECKPOINT.",
    )


def loss_file(folder: Path, rank: int) -> Path:
    """The file of a rank in the folder of its job."""
    return folder / f"losses-{rank}"


class LossWriter:
    """The worker's side."""

    def __init__(self, path: Path) -> None:
        with path.open("wb+") as file:
            file.truncate(_SIZE)
            self._memory = mmap.mmap(file.fileno(), _SIZE)
        self._count = 0

    def append(self, line: LossLine) -> None:
        """Leave a line."""
        place = _place(self._count)
        _LINE.pack_into(self._memory, place, line.step, line.samples, line.loss_sum)
        self._count += 1
        # Last of all: the parent may look at any moment.
        _COUNT.pack_into(self._memory, 0, self._count)


class _RankReader:
    """The lines of one rank, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def new_lines(self) -> list[LossLine]:
        """The lines since the last call."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        if len(content) < _SIZE:
            return []  # it is being made
        (count,) = _COUNT.unpack_from(content)
        first = max(self._read, count - CAPACITY)
        self._read = count
        return [LossLine(*_LINE.unpack_from(content, _place(n))) for n in range(first, count)]


Source = Callable[[], Sequence[LossLine]]
"""Gives the lines since the last call: those of a rank, or those of another machine's ranks."""


def rank_sources(folder: Path, ranks: Iterable[int]) -> list[Source]:
    """The lines of ranks whose files are in the folder of a job."""
    return [_RankReader(loss_file(folder, rank)).new_lines for rank in ranks]


class LossReader:
    """The parent's side: the lines of all ranks together."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._waiting: list[dict[int, LossLine]] = [{} for _ in sources]
        self.last_step = 0
        """That of the last line that was given."""

    def new_lines(self) -> list[LossLine]:
        """The lines since the last call, over the samples of all ranks, as far as all have them."""
        for waiting, source in zip(self._waiting, self._sources, strict=True):
            waiting.update({line.step: line for line in source()})
        common = sorted(set.intersection(*map(set, self._waiting)))
        lines = [_together([waiting.pop(step) for waiting in self._waiting]) for step in common]
        if common:
            self.last_step = common[-1]
            # A step that a rank has lost will not be complete any more.
            self._waiting = [
                {step: line for step, line in waiting.items() if step > common[-1]}
                for waiting in self._waiting
            ]
        return lines


def _together(lines: Sequence[LossLine]) -> LossLine:
    return LossLine(
        lines[0].step,
        sum(line.samples for line in lines),
        sum(line.loss_sum for line in lines),
    )


def _place(number: int) -> int:
    return _COUNT.size + number % CAPACITY * _LINE.size
