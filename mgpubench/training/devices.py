"""One process's share of a run: its rank, its devices, its part of the global batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mgpubench.config.run_config import RunConfig


@dataclass(frozen=True, slots=True)
class Share:
    """What one process has of a run."""

    rank: int
    device_numbers: range
    """Numbers of this process's devices among all devices of the run, from 0."""
    devices: tuple[torch.device, ...]
    batch: int
    """Samples that this process takes a step, on all its devices together."""

    @property
    def device(self) -> torch.device:
        """The first device: batches go there, and its stream is timed."""
        return self.devices[0]

    def synchronize(self) -> None:
        """Wait until every device of this process has finished its work."""
        for device in self._gpus:
            torch.cuda.synchronize(device)

    def peak_memory_bytes(self) -> list[int]:
        """Most memory that torch ever allocated on each device; empty on a CPU."""
        return [torch.cuda.max_memory_allocated(gpu) for gpu in self._gpus]

    def reset_peak_memory(self) -> None:
        """Begin the count of `peak_memory_bytes` anew."""
        for gpu in self._gpus:
            torch.cuda.reset_peak_memory_stats(gpu)

    @property
    def _gpus(self) -> list[torch.device]:
        """Each GPU once, also where replicas share it."""
        return [device for device in dict.fromkeys(self.devices) if device.type == "cuda"]


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a runner sits: its share of the run, and its ties to the launch."""

    share: Share
    store: Path
    """File by which the ranks of one run find each other."""
    listing: Path
    """The images of the run's folder, if its data are one."""
    on_step: Callable[[], None]
    """To be called after every step."""


def make_share(config: RunConfig, rank: int) -> Share:
    """The share of one rank: an equal part of the devices, and of the global batch."""
    per_rank = config.num_devices // config.world_size
    numbers = range(rank * per_rank, (rank + 1) * per_rank)
    return Share(
        rank=rank,
        device_numbers=numbers,
        devices=tuple(_device(config, number) for number in numbers),
        batch=config.batch_per_device * per_rank,
    )


def set_up_process(config: RunConfig, share: Share) -> None:
    """Set this process up for its share, before anything is allocated; the same in every mode."""
    if share.device.type == "cuda":
        # First of all: else every rank would open a context on GPU 0.
        torch.cuda.set_device(share.device)
    else:
        # Subnormal gradients, from a loss that collapses, are six times slower on a CPU.
        torch.set_flush_denormal(True)
    torch.manual_seed(config.seed)
    apply_settings(config)


def apply_settings(config: RunConfig) -> None:
    """Set torch to what the row will say.

    At the start of a process, and once more when the model is there: the module of a user's own may
    have set it otherwise.
    """
    torch.set_num_threads(config.threads_per_rank)
    torch.backends.cudnn.benchmark = "cudnn_benchmark" in dict(config.options)
    if hasattr(torch.backends, "fp32_precision"):
        # Since torch 2.9 there are levels: at "none" one does as the level above it.
        mkldnn: Any = torch.backends.mkldnn  # typed as if it had no levels below
        for level in (torch.backends, torch.backends.cudnn, mkldnn, mkldnn.conv, mkldnn.rnn):
            level.fp32_precision = "none"
    is_tf32 = config.precision == "tf32"
    # Torch's own defaults differ: TF32 on in convolutions, off in matrix products.
    torch.backends.cudnn.allow_tf32 = is_tf32
    torch.set_float32_matmul_precision("high" if is_tf32 else "highest")


def _device(config: RunConfig, number: int) -> torch.device:
    if config.device_type == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", config.device_indices[number])
