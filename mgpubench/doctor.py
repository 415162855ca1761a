"""What on this machine will hurt a benchmark, and the remedy for each thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mgpubench.config import PREFETCH_FACTOR, TORCHVISION_IMAGE_SIZE, Gpu, Machine
from mgpubench.format import format_count, format_size
from mgpubench.plan import MAX_DEFAULT_WORKERS
from mgpubench.request import STANDARD
from mgpubench.system import Survey, System, TorchBuild

MIN_OPEN_FILES = 1024
"""Loader workers hand every tensor over by a file descriptor."""

MIN_AVAILABLE_BYTES = 4 * 2**30
"""Torch with its CUDA libraries takes 2 to 3 GB of RAM in a process."""

MAX_LOAD_PER_CORE = 0.25
"""Above this, other work takes cores that the loaders and the ranks would use."""

LOADER_BYTES_PER_GPU = (
    MAX_DEFAULT_WORKERS * PREFETCH_FACTOR * STANDARD.batch_per_gpu * 3 * TORCHVISION_IMAGE_SIZE**2
)
"""What the loaders of a default run keep ready in shared memory: uint8 images."""

LOOPBACKS = ("lo", "lo0")

THROTTLE_REASONS = 0xFFFF & ~0x0003
"""All of NVML's reasons but an idle GPU and clocks that somebody set."""

COSTLY_VARIABLES = {
    "CUDA_LAUNCH_BLOCKING": "makes the host wait for every kernel",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "makes torch allocate every tensor anew",
    "NCCL_P2P_DISABLE": "sends what GPUs exchange through the host's memory",
    "NCCL_SHM_DISABLE": "sends what GPUs exchange through the network stack",
    "NCCL_DEBUG": "may make NCCL print while it is measured",
    "TORCH_DISTRIBUTED_DEBUG": "makes DDP check every collective",
    "OMP_NUM_THREADS": "sets the threads of every rank, in place of the cores / ranks",
    "TORCHDYNAMO_DISABLE": "switches --compile off",
    "TORCH_COMPILE_DISABLE": "switches --compile off",
}
HARMLESS_VALUES = {"", "0", "OFF", "WARN", "VERSION"}


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing that will hurt, and what to do about it."""

    code: str
    message: str
    remedy: str


def examine(survey: Survey) -> list[Advice]:
    """All advice about a machine, what matters most first."""
    return [
        *_torch(survey),
        *_gpus(survey),
        *_gpu_state(survey.system),
        *_processors(survey),
        *_memory(survey),
        *_variables(survey.environment),
        *_rest(survey.system),
    ]


def _torch(survey: Survey) -> Iterator[Advice]:
    if survey.torch_error:
        yield Advice(
            "no-torch",
            survey.torch_error,
            "Install torch and its torchvision; `python -c 'import torch'` must work.",
        )
    elif "torchvision" not in survey.system.packages:
        yield Advice(
            "no-torchvision",
            "torchvision is not installed: only the models tiny-cnn and mlp, and synthetic data",
            "Install the torchvision that goes with this torch.",
        )
    if survey.machine and not survey.machine.gpus:
        yield _no_gpu(survey.machine, survey.build)


def _no_gpu(machine: Machine, build: TorchBuild | None) -> Advice:
    if build and not build.cuda_version:
        remedy = "This torch is built without CUDA: install a CUDA build of it."
    elif machine.cuda_visible_devices is not None:
        remedy = (
            f"CUDA_VISIBLE_DEVICES={machine.cuda_visible_devices} may hide the GPUs: unset it, or "
            "name GPUs that exist."
        )
    elif machine.driver_version:
        remedy = (
            f"The driver is {machine.driver_version}: update it, or install a torch for an older "
            "CUDA."
        )
    else:
        remedy = (
            "Install NVIDIA's driver, or start the container with --gpus all; nvidia-smi must "
            "work. Without any GPU: mgpubench run --smoke."
        )
    return Advice("no-gpu", f"torch cannot use a GPU: {machine.cuda_reason}", remedy)


def _gpus(survey: Survey) -> Iterator[Advice]:
    machine, build = survey.machine, survey.build
    if machine is None or build is None or not machine.gpus:
        return
    if machine.num_gpus == 1:
        yield Advice(
            "one-gpu",
            "one GPU is usable: dp only calls the module, and ddp has nobody to talk to",
            "Make more visible with CUDA_VISIBLE_DEVICES; of MIG slices a process sees only one.",
        )
    if len(names := sorted({gpu.name for gpu in machine.gpus})) > 1:
        yield Advice(
            "mixed-gpus",
            f"the GPUs are of different models ({', '.join(names)}): the slowest sets the pace",
            "Choose equal ones with CUDA_VISIBLE_DEVICES.",
        )
    for gpu in machine.gpus:
        if not _is_built_for(gpu, build):
            yield Advice(
                "old-build",
                f"this torch has no code for {gpu.name} (sm_{gpu.capability[0]}"
                f"{gpu.capability[1]}; it has {', '.join(build.cuda_architectures)})",
                "Install a torch that is built for this GPU.",
            )
    if build.without_peer_access:
        first, second = build.without_peer_access[0]
        yield Advice(
            "no-peer-access",
            f"GPU {first} cannot reach the memory of GPU {second} ("
            f"{format_count(len(build.without_peer_access), 'such pair')}): what they exchange "
            "goes through the host",
            "NVLink or peer access over PCIe would help; consumer GPUs have neither, and an "
            "enabled IOMMU (ACS) takes it away.",
        )
    if "nccl" not in build.backends:
        yield Advice(
            "no-nccl",
            "this torch has no NCCL: ddp can only use gloo, which goes through the host",
            "Install a CUDA build of torch for Linux.",
        )


def _is_built_for(gpu: Gpu, build: TorchBuild) -> bool:
    """Machine code serves its own major version from its minor on; PTX serves all that is newer."""
    major, minor = gpu.capability
    for architecture in build.cuda_architectures:
        kind, _, digits = architecture.partition("_")
        number = int("".join(filter(str.isdecimal, digits)) or 0)
        built = divmod(number, 10)
        if built <= (major, minor) and (kind == "compute" or built[0] == major):
            return True
    return not build.cuda_architectures


def _gpu_state(system: System) -> Iterator[Advice]:
    indices = {state.get("uuid", ""): state.get("index", "?") for state in system.gpu_state}
    busy = sorted({indices.get(uuid, uuid) for uuid in system.gpu_processes})
    if busy:
        yield Advice(
            "busy-gpu",
            f"other processes compute on GPU {', '.join(busy)}",
            "Benchmark on idle GPUs; nvidia-smi shows who it is.",
        )
    for state in system.gpu_state:
        name = f"GPU {state.get('index', '?')}"
        reasons = int(state.get("clocks_throttle_reasons.active", "0"), 16) & THROTTLE_REASONS
        if reasons:
            yield Advice(
                "throttled",
                f"{name} is held back at this moment (NVML reasons {reasons:#x})",
                "nvidia-smi -q -d PERFORMANCE says why: heat, power or a power brake.",
            )
        if _watts(state, "power.limit") < _watts(state, "power.default_limit"):
            yield Advice(
                "power-limit",
                f"{name} is limited to {state['power.limit']} of {state['power.default_limit']}",
                "nvidia-smi -pl sets it (root).",
            )
        if state.get("pcie.link.width.current") != state.get("pcie.link.width.max"):
            yield Advice(
                "narrow-link",
                f"{name} uses {state.get('pcie.link.width.current', '?')} of "
                f"{state.get('pcie.link.width.max', '?')} PCIe lanes",
                "Another slot or riser may give it all of them.",
            )


def _watts(state: Mapping[str, str], name: str) -> float:
    number = state.get(name, "").removesuffix(" W")
    return float(number) if number.replace(".", "", 1).isdecimal() else 0.0


def _processors(survey: Survey) -> Iterator[Advice]:
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
            "real images the loaders may be what is measured",
            "Compare with --data synthetic, which needs no loaders.",
        )
    load = system.load_average_1min
    if load is not None and load > MAX_LOAD_PER_CORE * system.usable_cores:
        yield Advice(
            "busy",
            f"the load average of the last minute is {load:.1f} on "
            f"{format_count(system.usable_cores, 'usable core')}: something else is running",
            "Wait, or stop it: top shows what it is.",
        )
    if system.governor not in ("", "performance"):
        yield Advice(
            "governor",
            f"the CPU frequency governor is {system.governor}: clocks rise only after a while",
            "cpupower frequency-set -g performance (root).",
        )


def _memory(survey: Survey) -> Iterator[Advice]:
    system, shared = survey.system, survey.system.shared_memory
    gpus = max(1, survey.machine.num_gpus if survey.machine else 0)
    needed = gpus * LOADER_BYTES_PER_GPU
    remedy = "docker run --shm-size=8g or --ipc=host; or run with --workers-per-gpu 0."
    if shared is None or not shared.is_writable:
        yield Advice(
            "no-shm", "/dev/shm is missing or cannot be written, and loader workers need it", remedy
        )
    elif shared.free_bytes < needed:
        yield Advice(
            "small-shm",
            f"/dev/shm has {format_size(shared.free_bytes)} free of "
            f"{format_size(shared.size_bytes)}; the loader workers of a default run with real "
            f"images keep up to {format_size(needed)} there",
            remedy,
        )
    available = min(system.memory_available_bytes, system.memory_limit_bytes or 2**63)
    if available < MIN_AVAILABLE_BYTES:
        yield Advice(
            "little-memory",
            f"{format_size(available)} of RAM are available; torch takes 2 to 3 GB in a process",
            "Free some, or raise the limit of the container.",
        )
    if system.open_files_soft is not None and system.open_files_soft < MIN_OPEN_FILES:
        yield Advice(
            "few-files",
            f"a process may open {system.open_files_soft} files; loader workers need hundreds",
            f"ulimit -n {MIN_OPEN_FILES * 4}",
        )


def _variables(environment: Mapping[str, str]) -> Iterator[Advice]:
    for name, effect in COSTLY_VARIABLES.items():
        value = environment.get(name, "")
        if value.upper() not in HARMLESS_VALUES:
            yield Advice("variable", f"{name}={value} {effect}", f"unset {name}")


def _rest(system: System) -> Iterator[Advice]:
    if not any(interface.is_up for interface in system.interfaces if interface.name in LOOPBACKS):
        yield Advice(
            "no-loopback",
            "the loopback interface is down or missing, and the ranks of ddp meet there",
            "ip link set lo up (root).",
        )
    if not system.cxx_compiler:
        yield Advice(
            "no-compiler",
            "there is no C++ compiler, which --compile needs",
            "Install g++, or name another one in CXX.",
        )
    if system.is_virtual:
        yield Advice(
            "virtual",
            "this is a virtual machine: its neighbours can slow it down unseen",
            "Take more rounds (--rounds 10), and repeat the session another time.",
        )
