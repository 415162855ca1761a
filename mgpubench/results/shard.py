"""What one replica, or one rank, got of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ShardedBatch:
    """What is cut into shards."""

    listing: Path
    """The file with the samples of the image folder; read only if there is one."""
    samples: int
    """Of all devices together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """The images that one call of the model's forward pass received."""

    rank: int
    device: str
    """Such as `cuda:1`; on a CPU `replica 1`, since the replicas share the cores."""
    shape: tuple[int, ...]
    """Images, channels, height, width."""

    @property
    def samples(self) -> int:
        """The images."""
        return self.shape[0]
