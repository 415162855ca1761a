"""What torch says of this machine; asked in a child that ends, so the parent holds no context."""

from __future__ import annotations

import itertools
import os
import platform
import re
import warnings
from importlib.metadata import PackageNotFoundError, version

import torch

from mgpubench.config.run_config import Gpu, Machine
from mgpubench.machine import host
from mgpubench.machine.system import TorchBuild


def describe() -> Machine:
    """The machine as the workers will find it."""
    gpus, reason = _usable_gpus()
    return Machine(
        gpus=gpus,
        cuda_reason=reason,
        cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        cpu_model=host.cpu_model(),
        usable_cores=host.usable_cores(),
        omp_num_threads=host.omp_num_threads(os.environ),
        torch_version=str(torch.__version__),  # a plain str: its own class would import torch
        torchvision_version=_torchvision_version(),
        cuda_version=torch.version.cuda or "",
        nccl_version=_nccl_version() if gpus else "",
        driver_version=host.driver_version(is_usable=bool(gpus)),
        python_version=platform.python_version(),
    )


def describe_build() -> TorchBuild:
    """What torch was built with, and can do on this machine."""
    gpus, _ = _usable_gpus()
    pairs = itertools.permutations(range(len(gpus)), 2)
    return TorchBuild(
        git_version=torch.version.git_version,
        # Without the folders of the machine on which torch was built.
        config=re.sub(r"(CXX_COMPILER=)\S*/", r"\1", torch.__config__.show().strip()),
        cudnn_version=_cudnn_version(),
        nccl_version=_nccl_version(),
        cuda_architectures=tuple(torch.cuda.get_arch_list()),
        backends=_backends(),
        without_peer_access=tuple(
            pair for pair in pairs if not torch.cuda.can_device_access_peer(*pair)
        ),
    )


def _backends() -> tuple[str, ...]:
    if not torch.distributed.is_available():
        return ()
    return tuple(
        name
        for name in ("gloo", "nccl", "mpi", "ucc")
        if getattr(torch.distributed, f"is_{name}_available", lambda: False)()
    )


def count_gpus() -> int:
    """Visible GPUs, as the driver's library has them: CUDA itself is not started."""
    return torch.cuda.device_count()


def _cudnn_version() -> int | None:
    try:
        version: int | None = torch.backends.cudnn.version()
    # Below compute capability 7.5, of which a newer cuDNN knows nothing.
    except RuntimeError:
        return None
    return version


def _usable_gpus() -> tuple[tuple[Gpu, ...], str]:
    """The GPUs that torch can use, or none and torch's own reason."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.is_available()  # it may warn, and knows the reason best
    try:
        # Not started, torch counts the GPUs of the driver's library; of all their MIG slices CUDA
        # shows a process only one.
        torch.cuda.init()
        gpus = tuple(_gpu(index) for index in range(torch.cuda.device_count()))
    except (RuntimeError, AssertionError, torch.cuda.DeferredCudaCallError) as error:
        words = str(caught[0].message) if caught else str(error)
        # Torch appends its own source line, which is no news to the user.
        return (), words.partition("(Triggered")[0].partition("\n")[0].strip().rstrip(".")
    return gpus, "" if gpus else "torch sees no CUDA device"


def _gpu(index: int) -> Gpu:
    properties = torch.cuda.get_device_properties(index)
    return Gpu(
        name=properties.name,
        uuid=str(getattr(properties, "uuid", f"index-{index}")),
        memory_bytes=properties.total_memory,
        capability=(properties.major, properties.minor),
    )


def _torchvision_version() -> str:
    try:
        return version("torchvision")
    except PackageNotFoundError:
        return ""


def _nccl_version() -> str:
    if "nccl" not in _backends():
        return ""
    return ".".join(map(str, torch.cuda.nccl.version()))
