"""What the operating system says about the machine, without torch."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from mgpubench.config.machine_facts import Gpu, Machine, omp_num_threads
from mgpubench.machine.ask import file_text, known
from mgpubench.machine.cgroups import quota_cores

SHARED_MEMORY = Path("/dev/shm")

DEVICES = Path("/dev")
GPU_FILES = ("nvidia*", "dxg", "nvmap", "kfd")
"""NVIDIA's driver on Linux, on Windows' Linux and on Jetson, and AMD's."""


def usable_core_numbers() -> tuple[int, ...]:
    """The cores on which this process may run, by number."""
    affinity = getattr(os, "sched_getaffinity", None)
    return tuple(sorted(affinity(0))) if affinity else tuple(range(os.cpu_count() or 1))


def usable_cores() -> int:
    """How many cores this process may use, after CPU affinity and the cgroup's quota."""
    cores = len(usable_core_numbers())
    quota = quota_cores()
    return max(1, min(cores, int(quota)) if quota is not None else cores)


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """/dev/shm, through which loader workers pass their batches."""

    size_bytes: int | None
    free_bytes: int | None
    """None: it has no size, as some containers mount it."""
    is_writable: bool


def shared_memory() -> SharedMemory | None:
    """/dev/shm as it is now; None if there is none."""
    found = known(lambda: os.statvfs(SHARED_MEMORY))
    if found is None:
        return None
    return SharedMemory(
        size_bytes=found.f_blocks * found.f_frsize or None,
        free_bytes=found.f_bavail * found.f_frsize if found.f_blocks else None,
        is_writable=not found.f_flag & os.ST_RDONLY and os.access(SHARED_MEMORY, os.W_OK),
    )


def may_have_gpu() -> bool:
    """False if the system has no file of a GPU's driver, so that nothing could use one."""
    return any(next(DEVICES.glob(pattern), None) for pattern in GPU_FILES)


def cpu_model() -> str:
    """The name of the CPU; empty if the system does not say."""
    match = re.search(r"^model name\s*:\s*(.+)$", file_text(Path("/proc/cpuinfo")), re.MULTILINE)
    return match.group(1).strip() if match else platform.processor()


def assumed_machine(num_gpus: int) -> Machine:
    """This machine with GPUs that have not been looked at: enough to draw up a plan."""
    gpus = [
        Gpu(name="GPU", uuid=f"assumed-{index}", memory_bytes=0, capability=(8, 0))
        for index in range(num_gpus)
    ]
    return Machine(
        gpus=tuple(gpus),
        cuda_reason="" if gpus else "torch sees no CUDA device",
        cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        cpu_model=cpu_model(),
        usable_cores=usable_cores(),
        omp_num_threads=omp_num_threads(os.environ),
    )
