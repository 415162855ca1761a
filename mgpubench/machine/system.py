"""What this computer has, and what was installed on it; asked without root.

Only what changes how fast training is, and no name of a host, a user or a path. Unknown is empty
or None.
"""

from __future__ import annotations

import csv
import io
import os
import platform
import re
import resource
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import psutil

from mgpubench.config.run_config import Machine
from mgpubench.machine import host
from mgpubench.results.schema import CpuTime

PACKAGES = ("torch", "torchvision", "triton", "numpy", "pillow", "pillow-simd", "pandas", "psutil")

GPU_STATE = (
    *("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "pstate"),
    *("temperature.gpu", "power.draw", "power.limit", "power.default_limit", "clocks.sm"),
    *("clocks.max.sm", "persistence_mode", "ecc.mode.current"),
    *("pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max"),
)
"""Properties that nvidia-smi is asked for, in its own words; every driver of the last years knows
them."""

MIG_MODE = "mig.mode.current"
HELD_BACK = "clocks_event_reasons.active"
HELD_BACK_BEFORE_535 = "clocks_throttle_reasons.active"

BUSY = ("user", "nice", "system", "irq", "softirq", "steal")
"""The kinds of time of a core in which somebody uses it, by their names in psutil."""

_UNKNOWN = re.compile(r"\[|N/A|Not Supported|Unknown", re.IGNORECASE)

_GPU_UUID = re.compile(r"^(?:GPU|MIG)-[\w/-]+$", re.MULTILINE)

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
    """This computer at one moment."""

    os: str
    cpu_model: str
    cores: int | None
    """Logical cores of the machine."""
    physical_cores: int | None
    usable_cores: int
    """That this process may use: affinity and cgroup quota count."""
    affinity: tuple[int, ...]
    numa_nodes: int | None
    governor: str
    """Of the first core: `performance`, `powersave`..."""
    is_virtual: bool | None
    load_average_1min: float | None
    memory_bytes: int
    memory_available_bytes: int
    """The cgroup's limit and use count."""
    memory_limit_bytes: int | None
    """Of the cgroup; None where there is none."""
    shared_memory: host.SharedMemory | None
    open_files_soft: int | None
    """None: unlimited."""
    open_files_hard: int | None
    cxx_compiler: str
    """The C++ compiler that torch.compile would call; empty where it is not on the PATH."""
    interfaces: tuple[Interface, ...]
    packages: dict[str, str]
    torchvision_needs: str
    """The version of torch that the installed torchvision was built for; empty if unknown."""
    gpu_state: tuple[dict[str, str], ...]
    """One for each GPU of the machine, visible or not, as nvidia-smi tells it."""
    gpu_topology: str
    """`nvidia-smi topo -m`."""
    gpu_processes: tuple[str, ...]
    """UUIDs of the GPUs on which something computes, one for each process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchBuild:
    """What the installed torch was built with, and can do here."""

    git_version: str
    config: str
    """`torch.__config__.show()`, without paths."""
    cudnn_version: int | None
    nccl_version: str
    cuda_architectures: tuple[str, ...]
    backends: tuple[str, ...]
    """Of torch.distributed."""
    without_peer_access: tuple[tuple[int, int], ...]
    """Pairs of visible GPUs of which the first cannot reach the other's memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """All that `mgpubench info` knows. Without a torch that can be imported, half of it."""

    system: System
    machine: Machine | None
    build: TorchBuild | None
    torch_error: str
    """Why there is no more; empty where torch can be imported."""
    environment: dict[str, str]


def cpu_time() -> CpuTime:
    """What has been used up to now; it grows in steps of 10 ms."""
    mine = os.times()
    affinity = getattr(os, "sched_getaffinity", None)
    usable = affinity(0) if affinity else range(os.cpu_count() or 1)
    cores = psutil.cpu_times(percpu=True)
    counted = [cores[number] for number in usable if number < len(cores)]
    return CpuTime(
        at_s=time.monotonic(),
        busy_s=sum(sum(getattr(core, name, 0.0) for name in BUSY) for core in counted)
        if counted
        else None,
        own_s=mine.user + mine.system,
    )


def describe_system() -> System:
    """Ask the kernel, the package metadata and nvidia-smi."""
    memory = psutil.virtual_memory()
    limit = host.cgroup_memory(memory.total)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return System(
        os=platform.platform(),
        cpu_model=host.cpu_model(),
        cores=psutil.cpu_count(),
        physical_cores=psutil.cpu_count(logical=False),
        usable_cores=host.usable_cores(),
        affinity=tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (),
        numa_nodes=len(list(NODES.glob("node[0-9]*"))) or None,
        governor=host.read(CPUS / "cpu0" / "cpufreq" / "scaling_governor").strip(),
        is_virtual=_is_virtual(),
        load_average_1min=os.getloadavg()[0],
        memory_bytes=memory.total,
        memory_available_bytes=min(memory.available, limit.free_bytes if limit else sys.maxsize),
        memory_limit_bytes=limit.limit_bytes if limit else None,
        shared_memory=host.shared_memory(),
        open_files_soft=None if soft == resource.RLIM_INFINITY else soft,
        open_files_hard=None if hard == resource.RLIM_INFINITY else hard,
        cxx_compiler=_cxx_compiler(),
        interfaces=_interfaces(),
        packages={name: installed for name in PACKAGES if (installed := _version(name))},
        torchvision_needs=_torchvision_needs(),
        gpu_state=_gpu_state(),
        gpu_topology=_topology(),
        gpu_processes=tuple(
            _GPU_UUID.findall(
                host.ask_nvidia_smi("--query-compute-apps=gpu_uuid", "--format=csv,noheader")
            )
        ),
    )


def _gpu_state() -> tuple[dict[str, str], ...]:
    # One property that a driver does not know makes nvidia-smi refuse them all.
    for more in ((MIG_MODE, HELD_BACK), (MIG_MODE, HELD_BACK_BEFORE_535), ()):
        query = f"--query-gpu={','.join((*GPU_STATE, *more))}"
        answer = host.ask_nvidia_smi(query, "--format=csv,noheader")
        names = (*GPU_STATE, MIG_MODE, HELD_BACK) if more else GPU_STATE
        if found := parse_gpu_state(answer, names):
            return found
    return ()


def parse_gpu_state(answer: str, names: Sequence[str]) -> tuple[dict[str, str], ...]:
    """The lines of nvidia-smi's CSV; `[N/A]`, `Not Supported` and the like are left out."""
    try:
        lines = list(csv.reader(io.StringIO(answer), skipinitialspace=True))
    except csv.Error:
        return ()
    return tuple(
        {name: value for name, value in zip(names, line, strict=True) if not _UNKNOWN.match(value)}
        for line in lines
        if len(line) == len(names)
    )


def _topology() -> str:
    """`nvidia-smi topo -m` without its underlines, and with spaces for its tabs."""
    answer = re.sub("\x1b\\[[0-9;]*m", "", host.ask_nvidia_smi("topo", "-m"))
    return answer.expandtabs(8).strip("\n")


def _is_virtual() -> bool | None:
    """Intel and AMD tell a guest that it is one; others do not."""
    about = host.read(Path("/proc/cpuinfo"))
    return " hypervisor" in about if re.search("^flags", about, re.MULTILINE) else None


def _cxx_compiler() -> str:
    name = os.environ.get("CXX", "g++")
    return Path(name).name if shutil.which(name) else ""


def _interfaces() -> tuple[Interface, ...]:
    return tuple(
        Interface(name=name, is_up=stats.isup, speed_mbit_per_s=stats.speed or None)
        for name, stats in sorted(psutil.net_if_stats().items())
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
