"""What on this machine will hurt a benchmark, and the remedy for each problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mgpubench.config.machine_facts import Machine, omp_num_threads
from mgpubench.config.preset import STANDARD
from mgpubench.config.types import MAX_DEFAULT_WORKERS, PREFETCH_FACTOR, TORCHVISION_IMAGE_SIZE
from mgpubench.format import format_count, format_size
from mgpubench.machine.gpu_advice import Advice, examine_gpus
from mgpubench.machine.system import Survey, System

FILES_FOR_LOADERS = 1024
"""Loader workers pass every tensor by a file descriptor."""

MIN_AVAILABLE_BYTES = 4 * 2**30
"""Torch with its CUDA libraries takes 2 to 3 GB of RAM in a process."""

MAX_LOAD_PER_CORE = 0.75
"""Above this, other work takes cores from the loaders and ranks."""

LOADER_BYTES_PER_GPU = (
    MAX_DEFAULT_WORKERS * PREFETCH_FACTOR * STANDARD.batch_per_gpu * 3 * TORCHVISION_IMAGE_SIZE**2
)
"""Shared memory that the loaders of a default run fill with uint8 images."""

LOOPBACKS = ("lo", "lo0")

COSTLY_VARIABLES = {
    "CUDA_LAUNCH_BLOCKING": "makes the host wait for every kernel",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "makes torch allocate every tensor from the driver",
    "NCCL_P2P_DISABLE": "sends the traffic between GPUs through the memory of the host",
    "NCCL_SHM_DISABLE": "sends the traffic between GPUs through the network stack",
    "NCCL_DEBUG": "may make NCCL print during the measurement",
    "TORCH_DISTRIBUTED_DEBUG": "makes DDP check and log what it does",
    "OMP_NUM_THREADS": "sets the threads of every rank, instead of cores / ranks",
    "TORCHDYNAMO_DISABLE": "switches --compile off",
    "TORCH_COMPILE_DISABLE": "switches --compile off",
}

TEMPORARY = ("busy", "busy-gpu", "throttled")
"""Codes of advice about this moment, which may no longer apply in a minute."""

HARMLESS_VALUES = {"", "0", "OFF", "WARN", "VERSION"}


def examine(survey: Survey) -> list[Advice]:
    """All advice about a machine, most important first."""
    return [
        *_torch(survey),
        *examine_gpus(survey),
        *_cores(survey),
        *_speed_of_cores(survey.system),
        *_shared_memory(survey),
        *_memory(survey.system),
        *_open_files(survey.system),
        *_variables(survey.environment),
        *_network(survey.system),
        *_rest(survey.system),
    ]


def _torch(survey: Survey) -> Iterator[Advice]:
    if survey.torch_error:
        yield Advice(
            "no-torch",
            survey.torch_error,
            "Install torch and its torchvision; `python -c 'import torch'` must work.",
        )
    elif problem := _problem_with_torchvision(survey.system, survey.machine):
        yield Advice(
            "no-torchvision", problem, "Install the torchvision that belongs to this torch."
        )


def _problem_with_torchvision(system: System, machine: Machine | None) -> str:
    """Why torchvision cannot be used; empty if it can."""
    if "torchvision" not in system.packages:
        return "torchvision is not installed: only tiny-cnn and mlp on synthetic data can run"
    needed = system.torchvision_needs
    if machine is None or needed in ("", machine.torch_version.partition("+")[0]):
        return ""
    return (
        f"torchvision {machine.torchvision_version} was built for torch {needed}, and torch is "
        f"{machine.torch_version}: its models and image decoding will probably fail"
    )


def _cores(survey: Survey) -> Iterator[Advice]:
    system = survey.system
    gpus = survey.machine.num_gpus if survey.machine else 0
    if system.cores and system.usable_cores < system.cores:
        yield Advice(
            "fewer-cores",
            f"only {system.usable_cores} of {system.cores} cores may be used (affinity or cgroup)",
            "Ask the batch system or container for more: --cpus-per-task, --cpus, taskset.",
        )
    if system.usable_cores < MAX_DEFAULT_WORKERS * gpus:
        yield Advice(
            "few-cores",
            f"{format_count(system.usable_cores, 'core')} for {format_count(gpus, 'GPU')}: with "
            "real images the loaders may be the bottleneck",
            "Compare with --data synthetic, which needs no loaders.",
        )


def _speed_of_cores(system: System) -> Iterator[Advice]:
    load = system.load_average_1min
    if load is not None and load > MAX_LOAD_PER_CORE * system.usable_cores:
        yield Advice(
            "busy",
            f"the load average of the last minute is {load:.1f} on "
            f"{format_count(system.usable_cores, 'usable core')}: other work is running",
            "Stop it, or wait until it ends; top shows it.",
        )
    if system.governor not in ("", "performance"):
        yield Advice(
            "governor",
            f"the CPU frequency governor is {system.governor}: clock rates rise slowly",
            "cpupower frequency-set -g performance (root).",
        )


def _shared_memory(survey: Survey) -> Iterator[Advice]:
    shared = survey.system.shared_memory
    gpus = max(1, survey.machine.num_gpus if survey.machine else 0)
    needed = gpus * LOADER_BYTES_PER_GPU
    remedy = "docker run --shm-size=8g or --ipc=host; or run with --workers-per-gpu 0."
    if shared is None or not shared.is_writable:
        yield Advice(
            "no-shm", "/dev/shm is missing or read-only, and loader workers need it", remedy
        )
    elif shared.free_bytes is not None and shared.free_bytes < needed:
        yield Advice(
            "small-shm",
            f"/dev/shm has {format_size(shared.free_bytes)} free of "
            f"{format_size(shared.size_bytes)}; the loader workers of a default run with real "
            f"images keep up to {format_size(needed)} there",
            remedy,
        )


def _memory(system: System) -> Iterator[Advice]:
    available_bytes = system.memory_available_bytes
    if available_bytes is not None and available_bytes < MIN_AVAILABLE_BYTES:
        yield Advice(
            "little-memory",
            f"{format_size(available_bytes)} of RAM are available; each process with "
            "torch needs 2 to 3 GB",
            "Free some memory, or raise the limit of the container.",
        )


def _open_files(system: System) -> Iterator[Advice]:
    if system.open_files_soft is not None and system.open_files_soft < FILES_FOR_LOADERS:
        yield Advice(
            "few-files",
            f"a process may open {system.open_files_soft} files; loader workers need hundreds",
            f"ulimit -n {FILES_FOR_LOADERS * 4}"
            if (system.open_files_hard or FILES_FOR_LOADERS * 4) >= FILES_FOR_LOADERS * 4
            else "Have the hard limit raised: limits.conf, or docker run --ulimit nofile=65536.",
        )


def _variables(environment: Mapping[str, str]) -> Iterator[Advice]:
    for name, effect in COSTLY_VARIABLES.items():
        value = environment.get(name, "")
        ignored = name == "OMP_NUM_THREADS" and omp_num_threads(environment) is None
        if value.upper() not in HARMLESS_VALUES and not ignored:
            yield Advice("variable", f"{name}={value} {effect}", f"unset {name}")


def _network(system: System) -> Iterator[Advice]:
    if system.interfaces is not None and not any(
        interface.is_up for interface in system.interfaces if interface.name in LOOPBACKS
    ):
        yield Advice(
            "no-loopback",
            "the loopback interface is down or missing, and the ranks of ddp connect through it",
            "ip link set lo up (root).",
        )


def _rest(system: System) -> Iterator[Advice]:
    if not system.cxx_compiler:
        yield Advice(
            "no-compiler",
            "there is no C++ compiler, which --compile needs",
            "Install g++, or name another one in CXX.",
        )
    if system.is_virtual:
        yield Advice(
            "virtual",
            "this is a virtual machine: its neighbours can slow it down, unseen from here",
            "Use more rounds (--rounds 10), and repeat the session at another time.",
        )
