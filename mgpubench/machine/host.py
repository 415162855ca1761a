"""Facts about this computer that need no torch: cores, CPU, environment, drivers."""

from __future__ import annotations

import functools
import os
import platform
import re
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mgpubench.config.run_config import Gpu, Machine
from mgpubench.errors import RequestRefused

LAUNCHER_VARIABLES = re.compile(
    r"(RANK|LOCAL_RANK|GROUP_RANK|ROLE_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_WORLD_SIZE"
    r"|ROLE_WORLD_SIZE|ROLE_NAME|MASTER_\w+|TORCHELASTIC_\w+|SLURM_\w+)"
)
"""Variables by which launchers speak to their ranks. Left over from another job, they would make
torch wait for a store that nobody serves, so workers drop them."""

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
"""A variable of NVIDIA's libraries, which may read it as soon as they are loaded."""

MAX_THREADS = 1024

ANSWER_S = 15.0
"""How long nvidia-smi and git may take; nvidia-smi is slow with many GPUs that nobody uses."""

DRIVER = Path("/sys/module/nvidia/version")
SHARED_MEMORY = Path("/dev/shm")
CGROUP = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def check_current_folder() -> None:
    """Refuse to start where no process could be: in a folder that has been removed.

    Raises:
        RequestRefused: naming what is wrong.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise RequestRefused(
            "the current folder does not exist any more", "Change to another folder."
        ) from error


def usable_cores() -> int:
    """CPU cores that this process may use: CPU affinity and the cgroup's quota both count."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = _cgroup_quota_cores()
    return max(1, min(cores, int(quota)) if quota is not None else cores)


def _cgroup_quota_cores() -> float | None:
    """Cores' worth of CPU time that the cgroups allow; None where there is no limit."""
    quotas = [
        quota
        for folder in _own_cgroups("cpu")
        for quota in (_quota_v2(folder), _quota_v1(CGROUP / "cpu" / folder.relative_to(CGROUP)))
        if quota is not None
    ]
    return min(quotas, default=None)


def _own_cgroups(controller: str) -> list[Path]:
    """The cgroup of this process and those around it: a batch system limits one of them."""
    paths = []
    for line in read(OWN_CGROUP).splitlines():
        controllers, path = line.split(":", 2)[1:]
        if not controllers or controller in controllers.split(","):
            own = CGROUP / path.lstrip("/")
            paths += [own, *(parent for parent in own.parents if parent.is_relative_to(CGROUP))]
    return paths or [CGROUP]


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """What a cgroup lets its processes have."""

    limit_bytes: int
    free_bytes: int


def cgroup_memory(total_bytes: int) -> MemoryLimit | None:
    """The tightest limit on this process; None where none is below what the machine has."""
    files = [
        names
        for folder in _own_cgroups("memory")
        for names in (
            (folder / "memory.max", folder / "memory.current"),
            (_v1(folder) / "memory.limit_in_bytes", _v1(folder) / "memory.usage_in_bytes"),
        )
    ]
    texts = [(read(limit).strip(), read(used).strip()) for limit, used in files]
    limits = [
        MemoryLimit(int(limit), max(0, int(limit) - int(used or 0)))
        for limit, used in texts
        if limit.isdecimal() and int(limit) < total_bytes
    ]
    return min(limits, key=lambda limit: limit.free_bytes, default=None)


def _v1(folder: Path) -> Path:
    """Where version 1 of cgroups has the memory's part of a folder."""
    return CGROUP / "memory" / folder.relative_to(CGROUP)


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """/dev/shm, through which loader workers hand over their batches."""

    size_bytes: int
    free_bytes: int
    is_writable: bool


def shared_memory() -> SharedMemory | None:
    """/dev/shm as it is now; None where there is none."""
    try:
        found = os.statvfs(SHARED_MEMORY)
    except OSError:
        return None
    return SharedMemory(
        size_bytes=found.f_blocks * found.f_frsize,
        free_bytes=found.f_bavail * found.f_frsize,
        is_writable=not found.f_flag & os.ST_RDONLY and os.access(SHARED_MEMORY, os.W_OK),
    )


def _quota_v2(folder: Path) -> float | None:
    words = read(folder / "cpu.max").split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return None  # "max 100000" is no limit
    return int(words[0]) / int(words[1])


def _quota_v1(folder: Path) -> float | None:
    limit = read(folder / "cpu.cfs_quota_us").strip()
    period = read(folder / "cpu.cfs_period_us").strip()
    # A limit of -1 is none.
    return int(limit) / int(period) if limit.isdecimal() and period.isdecimal() else None


def read(path: Path) -> str:
    """The text of a file of the kernel's; empty where there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""


def cpu_model() -> str:
    """The CPU's name; empty where the system does not say."""
    match = re.search(r"^model name\s*:\s*(.+)$", read(Path("/proc/cpuinfo")), re.MULTILINE)
    return match.group(1).strip() if match else platform.processor()


def driver_version(*, is_usable: bool) -> str:
    """The NVIDIA driver's version; empty where nobody tells.

    The kernel knows it at once, but also in a container that has no GPU of its host's: it is asked
    only where the driver `is_usable`, and else nvidia-smi.
    """
    answer = read(DRIVER) if is_usable else ""
    answer = answer or ask_nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader")
    version = answer.partition("\n")[0].strip()
    return version if re.fullmatch(r"\d+(\.\d+)+", version) else ""


def ask_nvidia_smi(*arguments: str) -> str:
    """What nvidia-smi prints; empty where it is missing, fails or does not answer."""
    return _ask("nvidia-smi", *arguments) if nvidia_smi_answers() else ""


@functools.cache
def nvidia_smi_answers() -> bool:
    """False where it is missing or fails; and where it hangs, so that nobody waits for it twice."""
    return bool(_ask("nvidia-smi", "-L"))


def _ask(*command: str) -> str:
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=ANSWER_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout


def own_commit() -> str:
    """The git commit of this program, `-dirty` where files differ; empty where it is installed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    return _ask("git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12").strip()


def omp_num_threads(environ: Mapping[str, str]) -> int | None:
    """The user's OMP_NUM_THREADS; None where unset or not a possible number."""
    first = environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and 0 < int(first) <= MAX_THREADS else None


def assumed_machine(num_gpus: int) -> Machine:
    """This computer with GPUs that nobody has looked at: enough to draw up a plan."""
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


def recorded_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the environment that results carry: an allow-list, never the whole of it."""
    return {name: value for name, value in environ.items() if RECORDED_VARIABLES.fullmatch(name)}


def loopback_interface() -> str:
    """The name of the network interface that leads only to this machine."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), "")


def refuse_foreign_launcher(environ: Mapping[str, str]) -> None:
    """Refuse to be started N times: we start the processes ourselves.

    Raises:
        RequestRefused: under torchrun, or as one of several tasks of srun.
    """
    if "TORCHELASTIC_RUN_ID" in environ:
        raise RequestRefused(
            "started under torchrun, which would run the whole benchmark once in every process",
            "Start mgpubench on its own; it starts one process per GPU itself.",
        )
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "")
    if "SLURM_PROCID" in environ and tasks.isdecimal() and int(tasks) > 1:
        raise RequestRefused(
            f"started by srun as one of {tasks} tasks, each of which would run the whole benchmark",
            "Use srun --ntasks=1 with all GPUs; mgpubench starts one process per GPU itself.",
        )
