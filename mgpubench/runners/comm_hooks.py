"""How DDP compresses gradients before it exchanges them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import CommHook
from mgpubench.errors import RequestRefused
from mgpubench.format import gist, message_of

POWERSGD_START = 2
"""The first step that is compressed: the least that torch allows, and within the warm-up. Torch's
own default is 1,000, so that a short run would compress nothing."""


def register_hook(model: DistributedDataParallel, hook: CommHook) -> None:
    """Let DDP exchange gradients through a hook."""
    # Here and not above: a torch that lacks one of them may still do the rest.
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "bf16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=POWERSGD_START)
        if dist.get_backend() == "nccl":
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        else:
            # Torch reads annotations, and does not understand those that are texts: so a lambda.
            model.register_comm_hook(state, lambda state, bucket: _one_by_one(state, bucket))


def _one_by_one(state: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """PowerSGD, with each bucket finished before the next one begins.

    It exchanges several tensors for a bucket, from callbacks. Over NCCL these run at once. Over
    gloo they run in threads, so that the ranks would exchange different tensors with each other.
    """
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    future: torch.futures.Future[torch.Tensor] = powerSGD_hook.powerSGD_hook(state, bucket)
    future.wait()
    return future


def check_hook(config: RunConfig) -> None:
    """Try the hook of a run on a small model, in a group of one process.

    Raises:
        RequestRefused: with the reason that torch gives.
    """
    device = torch.device("cpu")
    if config.device_indices:
        device = torch.device("cuda", config.device_indices[0])
        torch.cuda.set_device(device)
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(config.backend, store=store, rank=0, world_size=1)
    try:
        model = DistributedDataParallel(nn.Linear(64, 64).to(device))
        register_hook(model, config.ddp.comm_hook)
        for _ in range(POWERSGD_START + 2):
            model(torch.ones(2, 64, device=device)).sum().backward()
    # Torch refuses with a TypeError, a backend with a RuntimeError, and a hook may be missing.
    except Exception as error:
        raise RequestRefused(
            f"--comm-hook {config.ddp.comm_hook} does not work here over {config.backend}: "
            f"{gist(message_of(error))}",
            "Use another hook or another --backend, or leave it out.",
        ) from error
