"""Hardware and software of the machine at one moment, found out without root and without torch.

Only what changes how fast training is, and no name of a host, user or path. Unknown is empty or
None.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import psutil

from mgpubench.config.machine_facts import Machine
from mgpubench.machine import host, nvidia_smi
from mgpubench.machine.ask import file_text, known
from mgpubench.machine.cgroups import memory_limit

PACKAGES = ("torch", "torchvision", "triton", "numpy", "pillow", "pillow-simd", "pandas", "psutil")

CPUS = Path("/sys/devices/system/cpu")
NODES = Path("/sys/devices/system/node")


@dataclass(frozen=True, kw_only=True, slots=True)
class Interface:
    """A network interface."""

    name: str
    is_up: bool
    speed_mbit_per_s: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """The machine at one moment."""

    os: str
    cpu_model: str
    cores: int | None
    """Logical cores of the machine."""
    physical_cores: int | None
    usable_cores: int
    """Cores that this process may use, after CPU affinity and cgroup quota."""
    affinity: tuple[int, ...]
    numa_nodes: int | None
    governor: str
    """Frequency governor of the first core, such as `performance` or `powersave`."""
    is_virtual: bool | None
    load_average_1min: float | None
    memory_bytes: int | None
    memory_available_bytes: int | None
    """What this process can still get, after the cgroup's limit."""
    memory_limit_bytes: int | None
    """The cgroup's limit; None if there is none."""
    shared_memory: host.SharedMemory | None
    open_files_soft: int | None
    """None: unlimited."""
    open_files_hard: int | None
    cxx_compiler: str
    """The C++ compiler that torch.compile would call; empty if it is not on the PATH."""
    interfaces: tuple[Interface, ...] | None
    packages: dict[str, str]
    torchvision_needs: str
    """The version of torch that the installed torchvision was built for; empty if unknown."""
    gpu_state: tuple[dict[str, str], ...]
    """The state of each GPU of the machine, visible to torch or not, from nvidia-smi."""
    gpu_topology: str
    """`nvidia-smi topo -m`."""
    gpu_processes: tuple[str, ...]
    """The UUID of a GPU for each process that computes on it."""
    nvidia_smi_exit_code: int | None = None
    """None if it is missing or fails. Another code than 0 is a warning beside its answers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchBuild:
    """What the installed torch was built with, and what it can do on this machine."""

    git_version: str
    config: str
    """`torch.__config__.show()`, without paths."""
    cudnn_version: int | None
    nccl_version: str
    cuda_architectures: tuple[str, ...]
    backends: tuple[str, ...]
    """Backends of torch.distributed."""
    without_peer_access: tuple[tuple[int, int], ...]
    """Pairs of visible GPUs in which the first cannot reach the memory of the second."""
    socket_interfaces: dict[str, str] = field(default_factory=dict)
    """The variables that bind gloo and NCCL to an interface, as they are in effect in a worker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """All that `mgpubench info` knows. It knows less if torch cannot be imported."""

    system: System
    machine: Machine | None
    build: TorchBuild | None
    torch_error: str
    """Why torch cannot be imported; empty if it can."""
    environment: dict[str, str]


def describe_system() -> System:
    """Ask the kernel, the package metadata and nvidia-smi."""
    memory_bytes, available_bytes = _memory()
    limit = memory_limit(memory_bytes)
    load = known(os.getloadavg)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return System(
        os=platform.platform(),
        cpu_model=host.cpu_model(),
        cores=known(psutil.cpu_count),
        physical_cores=known(lambda: psutil.cpu_count(logical=False)),
        usable_cores=host.usable_cores(),
        affinity=host.usable_core_numbers(),
        numa_nodes=len(list(NODES.glob("node[0-9]*"))) or None,
        governor=file_text(CPUS / "cpu0" / "cpufreq" / "scaling_governor").strip(),
        is_virtual=_is_virtual(),
        load_average_1min=load[0] if load else None,
        memory_bytes=memory_bytes,
        memory_available_bytes=min(
            (
                size
                for size in (available_bytes, limit.free_bytes if limit else None)
                if size is not None
            ),
            default=None,
        ),
        memory_limit_bytes=limit.limit_bytes if limit else None,
        shared_memory=host.shared_memory(),
        open_files_soft=None if soft == resource.RLIM_INFINITY else soft,
        open_files_hard=None if hard == resource.RLIM_INFINITY else hard,
        cxx_compiler=_cxx_compiler(),
        interfaces=_interfaces(),
        packages={name: installed for name in PACKAGES if (installed := _version(name))},
        torchvision_needs=_torchvision_needs(),
        gpu_state=nvidia_smi.gpu_state(),
        gpu_topology=nvidia_smi.topology(),
        gpu_processes=nvidia_smi.busy_gpus(),
        nvidia_smi_exit_code=nvidia_smi.usual_exit_code(),
    )


def _memory() -> tuple[int | None, int | None]:
    """RAM, and the part of it that is available; None if the system does not say."""
    memory = known(psutil.virtual_memory)
    # All zero is what some containers show.
    return (memory.total, memory.available) if memory and memory.total else (None, None)


def _is_virtual() -> bool | None:
    """True inside a virtual machine. Only Intel and AMD say so; None elsewhere."""
    about = file_text(Path("/proc/cpuinfo"))
    return " hypervisor" in about if re.search("^flags", about, re.MULTILINE) else None


def _cxx_compiler() -> str:
    name = os.environ.get("CXX", "g++")
    return Path(name).name if shutil.which(name) else ""


def _interfaces() -> tuple[Interface, ...] | None:
    found = known(psutil.net_if_stats)
    if found is None:
        return None
    return tuple(
        Interface(name=name, is_up=stats.isup, speed_mbit_per_s=stats.speed or None)
        for name, stats in sorted(found.items())
    )


def _torchvision_needs() -> str:
    try:
        needed = requires("torchvision") or ()
    except PackageNotFoundError:
        return ""
    found = (re.match(r"torch\s*\(?==\s*([\d.]+)", requirement) for requirement in needed)
    return next((match.group(1) for match in found if match), "")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
