"""What torch says about the machine. Called in a child process, so the parent holds no context."""

from __future__ import annotations

import itertools
import os
import platform
import re
import sysconfig
import warnings
from importlib.metadata import PackageNotFoundError, version

import torch

from mgpubench.config.machine_facts import Gpu, Machine, omp_num_threads
from mgpubench.machine import host
from mgpubench.machine.environment import socket_interfaces
from mgpubench.machine.nvidia_smi import driver_version
from mgpubench.machine.system import TorchBuild

_IS_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
"""A build without the global interpreter lock, whose version has a `t` at its end."""


def describe_torch() -> tuple[Machine, TorchBuild]:
    """All that torch says about the machine and about itself."""
    return describe(), describe_build()


def describe() -> Machine:
    """What a plan needs to know about the machine, as torch sees it."""
    gpus, reason = _usable_gpus()
    return Machine(
        gpus=gpus,
        cuda_reason=reason,
        cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        cpu_model=host.cpu_model(),
        usable_cores=host.usable_cores(),
        omp_num_threads=omp_num_threads(os.environ),
        cuda_architectures=tuple(torch.cuda.get_arch_list()) if gpus else (),
        torch_version=str(torch.__version__),  # plain: its own class would import torch
        torchvision_version=_torchvision_version(),
        cuda_version=torch.version.cuda or "",
        nccl_version=_nccl_version() if gpus else "",
        driver_version=driver_version(is_usable=bool(gpus)),
        python_version=platform.python_version() + ("t" if _IS_FREE_THREADED else ""),
    )


def describe_build() -> TorchBuild:
    """What torch was built with, and what it can do on this machine."""
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
        socket_interfaces=socket_interfaces(os.environ),
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
    """Number of visible GPUs, as the driver's library counts them, without starting CUDA."""
    return torch.cuda.device_count()


def _cudnn_version() -> int | None:
    try:
        version: int | None = torch.backends.cudnn.version()
    # Newer cuDNN versions do not know GPUs below compute capability 7.5.
    except RuntimeError:
        return None
    return version


def _usable_gpus() -> tuple[tuple[Gpu, ...], str]:
    """The GPUs that torch can use, or none and torch's reason."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.is_available()  # its warning says best why not
    try:
        # Before CUDA is started, torch counts what the driver's library lists. CUDA itself shows a
        # process only one MIG slice.
        torch.cuda.init()
        gpus = tuple(_gpu(index) for index in range(torch.cuda.device_count()))
    except (RuntimeError, AssertionError, torch.cuda.DeferredCudaCallError) as error:
        words = str(caught[0].message) if caught else str(error)
        # Torch appends its own source line, which does not help the user.
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
