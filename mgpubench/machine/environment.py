"""The environment variables that change how fast training is."""

from __future__ import annotations

import re
from collections.abc import Mapping

RECORDED_VARIABLES = re.compile(
    r"CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|DEVICE_MAX_CONNECTIONS|LAUNCH_BLOCKING|MODULE_LOADING)"
    r"|(OMP|MKL|OPENBLAS)_NUM_THREADS|KMP_(AFFINITY|BLOCKTIME)|OMP_(PROC_BIND|PLACES)"
    r"|PYTORCH_(CUDA_)?ALLOC_CONF|TORCH_(ALLOW_TF32_CUBLAS_OVERRIDE|CUDNN_V8_API_DISABLED)"
    r"|CUBLAS_WORKSPACE_CONFIG|TORCH_NCCL_(?!.*(FILE|PATH))\w+"
    r"|PYTORCH_NO_CUDA_MEMORY_CACHING|TORCH_DISTRIBUTED_DEBUG|TORCH(DYNAMO|_COMPILE)_DISABLE"
    r"|NCCL_(?!.*(FILE|PATH|HOME|ID|PLUGIN|ADDR))\w+|GLOO_SOCKET_IFNAME"
)
"""Variables that change how fast training is, and hold no path, name or secret."""

TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"
"""Read by NVIDIA's libraries, possibly as soon as they are loaded."""

MAX_THREADS = 1024


def omp_num_threads(environ: Mapping[str, str]) -> int | None:
    """The user's OMP_NUM_THREADS; None if it is unset or not a possible number."""
    first = environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and 0 < int(first) <= MAX_THREADS else None


def recorded_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that results record: those on an allow-list, never the whole environment."""
    return {name: value for name, value in environ.items() if RECORDED_VARIABLES.fullmatch(name)}
