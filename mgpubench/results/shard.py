"""What one replica, or one rank, got of a batch."""

from __future__ import annotations

from dataclasses import dataclass


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
