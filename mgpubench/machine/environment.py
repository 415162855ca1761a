"""The environment variables that decide a number: recorded with every session, and compared."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import PurePath

from mgpubench.config.digest import hex_digits

DECIDING_VARIABLES = re.compile(
    r"(ATEN|CUDA|CUDNN|CUBLAS|CUBLASLT|DNNL|ONEDNN|GOMP|OMP|KMP|MKL|OPENBLAS|NCCL|GLOO|TORCH"
    r"|TORCHDYNAMO|TORCHINDUCTOR|PYTORCH|TRITON|MALLOC|TCMALLOC)_\w+"
    r"|MALLOC_CONF|GLIBC_TUNABLES|LD_PRELOAD"
    r"|PYTHONMALLOC|PYTHONDEVMODE|PYTHONTRACEMALLOC|PYTHONOPTIMIZE"
)
"""Variables that can change how fast training is."""

OTHER_VARIABLES = re.compile(
    r"\w+_(HOME|PATH|ROOT|DIR|FILE|VERSION|LOGS|LOG_LEVEL|ARCH_LIST)"
    r"|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|CUDA_CACHE_\w+|\w+_SOCKET_IFNAME|NCCL_DEBUG"
    r"|NCCL_COMM_ID|NCCL_HOSTID|KMP_DUPLICATE_LIB_OK|OMP_NUM_THREADS"
)
"""Those of them that do not: places, versions, logs, identities, what mgpubench sets itself, and
OMP_NUM_THREADS, which has a column of its own (`threads_per_rank`)."""

TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"
"""Read by NVIDIA's libraries, possibly as soon as they are loaded."""

SPIN_COUNT = "GOMP_SPINCOUNT"
WAITING = frozenset({SPIN_COUNT, "OMP_WAIT_POLICY"})
"""Variables that say how GNU's OpenMP, which torch comes with, lets threads wait."""

NO_VARIABLES = "none"


def recorded_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that results record: those on a list, never the whole environment.

    Paths are reduced to the names of their files, since paths are private.
    """
    return {
        name: _without_folders(value)
        for name, value in sorted(environ.items())
        if DECIDING_VARIABLES.fullmatch(name) and not OTHER_VARIABLES.fullmatch(name)
    }


def socket_interfaces(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that bind gloo, NCCL and others to a network interface."""
    return {
        name: value for name, value in sorted(environ.items()) if name.endswith("_SOCKET_IFNAME")
    }


def waiting_on_cpu(environ: Mapping[str, str], *, may_have_gpu: bool) -> dict[str, str]:
    """How threads wait for each other on a machine without GPUs, unless the user has decided it.

    OpenMP's threads spin for a long time before they sleep. Beside two busy loops on two cores that
    made `single` with tiny-cnn 21 times slower, and 2.5 times with this number of spins. On idle
    cores it takes 13 % of the speed of ResNet-18 with images of 64 pixels, and 37 % of tiny-cnn's.
    """
    if may_have_gpu or not WAITING.isdisjoint(environ):
        return {}
    return {SPIN_COUNT: "1000"}


def environment_digest(recorded: Mapping[str, str], varied: Collection[str] = ()) -> str:
    """8 hex digits for the recorded variables but those that the variants set; `none` for none."""
    lines = [f"{name}={value}" for name, value in sorted(recorded.items()) if name not in varied]
    if not lines:
        return NO_VARIABLES
    return hex_digits(hashlib.sha256("\n".join(lines).encode(errors="replace")).digest(), 8)


def _without_folders(value: str) -> str:
    words = re.split(r"([ :;,]+)", value)
    return "".join(PurePath(word).name if "/" in word else word for word in words)
