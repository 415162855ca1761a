"""What the buffers hold before an operation, so that every result can be predicted exactly.

The numbers are small integers, so their sums over all ranks are exact in fp32, in whatever order
they are added. They differ by place, by rank and by call: data from a wrong place, from a wrong
rank or from an earlier call is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PLACES = 61
TAGS = 101
"""Primes, so that no two neighbours have the same numbers, nor pieces of usual sizes."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The numbers of one size on one rank of several."""

    places: Tensor
    """A number for each element of the whole buffer."""
    rank: int
    world_size: int

    def whole(self, rank: int, call: int) -> Tensor:
        """The whole buffer of a rank in a call."""
        return self.places + _tag(rank, call)

    def piece(self, index: int, rank: int, call: int) -> Tensor:
        """One of `world_size` equal pieces of the whole buffer of a rank in a call."""
        return self.piece_of(self.places, index) + _tag(rank, call)

    def sum(self, call: int) -> Tensor:
        """The sum of the whole buffers of all ranks in a call."""
        tags = sum(_tag(rank, call) for rank in range(self.world_size))
        return self.places * self.world_size + tags

    def piece_of(self, whole: Tensor, index: int) -> Tensor:
        """A view of one piece of a whole buffer."""
        size = self.num_in_piece
        return whole[index * size : (index + 1) * size]

    @property
    def num_in_piece(self) -> int:
        """Elements of a piece."""
        return len(self.places) // self.world_size

    def empty_whole(self) -> Tensor:
        """A whole buffer without numbers."""
        return torch.empty_like(self.places)

    def empty_piece(self) -> Tensor:
        """A piece without numbers."""
        return self.places.new_empty(self.num_in_piece)


def make_pattern(num_elements: int, rank: int, world_size: int, device: torch.device) -> Pattern:
    """The pattern of a size, in fp32 on a device."""
    places = torch.arange(num_elements, device=device).remainder_(PLACES).to(torch.float32)
    return Pattern(places, rank, world_size)


def _tag(rank: int, call: int) -> int:
    """A number below TAGS, the same for no two of up to TAGS ranks, nor of consecutive calls."""
    return (37 * rank + 13 * call) % TAGS
