"""Whether DeepSpeed runs here: asked before the first run, which would otherwise wait for it."""

from __future__ import annotations

import os
import shutil
import traceback

import torch
import torch.distributed as dist
from torch import nn

from mgpubench.config.run_config import RunConfig
from mgpubench.errors import RequestRefused
from mgpubench.format import gist, message_of
from mgpubench.runners.deepspeed import find_ninja, wrap


def check_deepspeed(config: RunConfig) -> None:
    """Try DeepSpeed on a small model, in a group of one process. On a CPU it compiles a part first.

    Raises:
        RequestRefused: if it is not installed, or what it needs, or with the reason that it gives.
    """
    find_ninja()
    _refuse_missing(config)
    if config.device_indices:
        torch.cuda.set_device(config.device_indices[0])
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(config.backend, store=store, rank=0, world_size=1)
    try:
        engine = wrap(nn.Linear(64, 64), config, 0)
        for _ in range(config.accumulate):
            engine.backward(engine(torch.ones(2, 64, device=engine.device)).sum())
            engine.step()
    # A compiler, a CUDA toolkit or another package may be missing or too old.
    except Exception as error:
        raise RequestRefused(
            f"--mode deepspeed does not work here: {type(error).__name__}: "
            f"{gist(message_of(error))}",
            "--verbose shows the traceback. Or leave deepspeed out of --mode.",
            "".join(traceback.format_exception(error)),
        ) from error


def _refuse_missing(config: RunConfig) -> None:
    try:
        import deepspeed  # noqa: F401
    except ImportError as error:
        raise RequestRefused(
            f"--mode deepspeed needs the package deepspeed: {gist(message_of(error))}",
            "Install it, with what it needs: pip install deepspeed",
        ) from error
    tools = {"a C++ compiler": (os.environ.get("CXX") or "c++").split()[0], "ninja": "ninja"}
    missing = [f"{what} ({name})" for what, name in tools.items() if shutil.which(name) is None]
    if missing and config.device_type == "cpu":
        raise RequestRefused(
            f"--mode deepspeed needs {' and '.join(missing)}, to compile a part of itself",
            "Install g++ and ninja (apt install g++ ninja-build), or leave deepspeed out of "
            "--mode.",
        )
