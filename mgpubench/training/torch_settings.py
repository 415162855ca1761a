"""Torch's global settings, as the row of the run says: the same in every mode."""

from __future__ import annotations

import os
import random
from typing import Any

import torch

from mgpubench.config.run_config import RunConfig
from mgpubench.training.devices import Part


def set_up_process(part: Part) -> None:
    """Set this process up for its part, before anything is allocated."""
    if part.device.type == "cuda":
        # First of all, or every rank would open a context on GPU 0.
        torch.cuda.set_device(part.device)
    torch.manual_seed(part.config.seed)
    apply_settings(part.config)


def use_deterministic_algorithms() -> None:
    """Let torch refuse every operation that may give another result the next time."""
    # cuBLAS reads this when its first handle is made.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True


def seed_rank(seed: int, rank: int) -> None:
    """Seed what a model draws while it trains, so that no two ranks draw the same (dropout)."""
    torch.manual_seed(random.Random(f"{seed}/{rank}").getrandbits(63))


def apply_settings(config: RunConfig) -> None:
    """Set torch to what the row will say.

    This is done at the start of a process, and again when the model has been built, since the
    module of a user's own model may have changed the settings. `models.switches` has the others.
    """
    torch.set_num_threads(config.threads_per_rank)
    if config.device_type == "cpu":
        # Subnormal gradients, from a loss that collapses, are six times slower.
        torch.set_flush_denormal(True)
    torch.backends.cudnn.benchmark = config.cudnn_benchmark
    if hasattr(torch.backends, "fp32_precision"):
        # Since torch 2.9 there are levels of settings: "none" follows the level above.
        mkldnn: Any = torch.backends.mkldnn  # typed as if it had no levels below
        for level in (torch.backends, torch.backends.cudnn, mkldnn, mkldnn.conv, mkldnn.rnn):
            level.fp32_precision = "none"
    is_tf32 = config.precision == "tf32"
    # Torch's own defaults differ: TF32 is on in convolutions, and off in matrix products.
    torch.backends.cudnn.allow_tf32 = is_tf32
    torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
