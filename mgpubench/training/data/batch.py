"""What a process trains on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from mgpubench.results.rank_record import Remark

Batch = tuple[Tensor, Tensor]
"""Images, uint8 of shape (batch, 3, size, size), and labels, int64 of shape (batch,)."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A supply of micro-batches: `accumulate` of them make a step."""

    batches: Iterator[Batch]
    remarks: set[Remark]
    """What was noticed about images so far."""
