"""One process's part of a run: its rank, its devices, and its part of every global batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from mgpubench.config.run_config import RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One process's part of a run."""

    config: RunConfig
    rank: int
    device_numbers: range
    """Numbers of this process's devices among all devices of the run, from 0."""
    devices: tuple[torch.device, ...]
    store: Path
    """The file through which the ranks of a run find each other."""
    listing: Path
    """The file with the samples of the image folder; read only if the run uses one."""
    losses: Path
    """The file in which this rank leaves its lines of loss."""
    on_step: Callable[[], None]
    """Called after every step."""
    on_progress: Callable[[], None]
    """Called after other work that takes time: an evaluation batch, a checkpoint."""

    @property
    def batch(self) -> int:
        """Samples that this process takes in a step, on all its devices together."""
        return self.config.batch_per_device * len(self.devices)

    @property
    def micro_batch(self) -> int:
        """Samples that this process takes at once, on all its devices together."""
        return self.config.micro_batch_per_device * len(self.devices)

    @property
    def device(self) -> torch.device:
        """The first device: batches go there, and its stream is timed."""
        return self.devices[0]

    def synchronize(self) -> None:
        """Wait until every device of this process has finished its work."""
        for device in self._gpus:
            torch.cuda.synchronize(device)

    def peak_memory_bytes(self) -> list[int]:
        """The most memory that torch ever allocated on each device; empty on a CPU."""
        return [torch.cuda.max_memory_allocated(gpu) for gpu in self._gpus]

    def peak_reserved_bytes(self) -> tuple[int, ...]:
        """The most memory that torch ever took from the driver on each device; empty on a CPU."""
        return tuple(torch.cuda.max_memory_reserved(gpu) for gpu in self._gpus)

    def reset_peak_memory(self) -> None:
        """Start `peak_memory_bytes` again from the present use."""
        for gpu in self._gpus:
            torch.cuda.reset_peak_memory_stats(gpu)

    @property
    def _gpus(self) -> list[torch.device]:
        """Each GPU once, even if replicas share it."""
        return [device for device in dict.fromkeys(self.devices) if device.type == "cuda"]


def devices_of_rank(config: RunConfig, rank: int) -> tuple[range, tuple[torch.device, ...]]:
    """The numbers and devices of one rank: an equal part of the devices of the run."""
    per_rank = config.num_devices // config.world_size
    numbers = range(rank * per_rank, (rank + 1) * per_rank)
    return numbers, tuple(_device(config, number) for number in numbers)


def _device(config: RunConfig, number: int) -> torch.device:
    if config.device_type == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", config.device_indices[number])
