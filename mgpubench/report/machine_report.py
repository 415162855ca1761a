"""What `mgpubench info` prints: the machine in a few lines, and advice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from mgpubench import __version__
from mgpubench.format import format_count, format_size, plain
from mgpubench.machine.gpu_advice import Advice
from mgpubench.machine.system import Survey, System

UNLIMITED = "unlimited"


def to_text(survey: Survey, advice: list[Advice]) -> str:
    """Facts, one per line, and then each problem with its remedy."""
    facts = [("mgpubench", __version__), *_software(survey), *_gpus(survey), *_hardware(survey)]
    width = max(len(name) for name, _ in facts)
    lines = [f"{name:<{width}}  {plain(value)}" for name, value in facts]
    if topology := survey.system.gpu_topology:
        lines += ["", "nvidia-smi topo -m", *map(plain, topology.splitlines())]
    lines += ["", _headline(advice)]
    for item in advice:
        lines += [f"- {plain(item.message)} [{item.code}]", f"  remedy: {plain(item.remedy)}"]
    return "\n".join(lines)


def to_json(survey: Survey, advice: list[Advice]) -> str:
    """Everything that is known. Unknown is null or empty."""
    document = {
        "mgpubench_version": __version__,
        **asdict(survey),
        "advice": [asdict(item) for item in advice],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def _headline(advice: list[Advice]) -> str:
    if not advice:
        return "nothing found that would hurt a benchmark"
    return f"{format_count(len(advice), 'problem')} that will hurt or limit a benchmark:"


def _software(survey: Survey) -> Iterator[tuple[str, str]]:
    system, machine, build = survey.system, survey.machine, survey.build
    yield "system", system.os
    if machine is None or build is None:
        yield "torch", survey.torch_error
        return
    parts = [
        machine.torch_version,
        machine.cuda_version and f"CUDA {machine.cuda_version}",
        build.cudnn_version and f"cuDNN {dotted_cudnn(build.cudnn_version)}",
        build.nccl_version and f"NCCL {build.nccl_version}",
    ]
    yield "torch", ", ".join(str(part) for part in parts if part)
    yield "torchvision", machine.torchvision_version or "not installed"
    yield "Python", machine.python_version
    yield "ddp backends", ", ".join(build.backends) or "none"
    yield "driver", machine.driver_version or "none found (nvidia-smi does not answer)"


def dotted_cudnn(version: int) -> str:
    """The version of cuDNN with dots: 92400 is 9.24.0, and 8902 is 8.9.2."""
    major, rest = divmod(version, 10_000 if version >= 90_000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _gpus(survey: Survey) -> Iterator[tuple[str, str]]:
    if survey.machine is None:
        return
    if not survey.machine.gpus:
        yield "GPUs", f"none usable: {survey.machine.cuda_reason}"
    for number, gpu in enumerate(survey.machine.gpus):
        capability = ".".join(map(str, gpu.capability))
        yield (
            f"GPU {number}",
            f"{gpu.name}, {format_size(gpu.memory_bytes)}, compute capability {capability}",
        )
    if survey.machine.num_gpus > 1 and survey.build:
        without = len(survey.build.without_peer_access)
        directions = survey.machine.num_gpus * (survey.machine.num_gpus - 1)
        missing = f"missing in {without} of {directions} directions"
        yield "peer access", missing if without else "all to all"


def _hardware(survey: Survey) -> Iterator[tuple[str, str]]:
    system = survey.system
    yield "CPU", _cpu(system)
    limit = system.memory_limit_bytes
    limited = f" (the cgroup allows {format_size(limit)})" if limit else ""
    available = ""
    if system.memory_available_bytes is not None:
        available = f", {format_size(system.memory_available_bytes)} available"
    yield "RAM", f"{format_size(system.memory_bytes)}{available}{limited}"
    shared, free = system.shared_memory, ""
    if shared is not None and shared.free_bytes is not None:
        free = f", {format_size(shared.free_bytes)} free"
    yield "/dev/shm", f"{format_size(shared.size_bytes)}{free}" if shared else "none"
    soft, hard = system.open_files_soft, system.open_files_hard
    raised = f" (can be raised to {hard or UNLIMITED})" if hard != soft else ""
    yield "open files", f"{soft or UNLIMITED}{raised}"
    yield "C++ compiler", system.cxx_compiler or "none"


def _cpu(system: System) -> str:
    parts = [
        system.cpu_model or "unknown",
        f"{format_count(system.usable_cores, 'usable core')} of {system.cores or '?'}",
        f"{format_count(system.physical_cores, 'physical core')}" if system.physical_cores else "",
        f"{format_count(system.numa_nodes, 'NUMA node')}" if system.numa_nodes else "",
        f"load {system.load_average_1min:.2f}" if system.load_average_1min is not None else "",
    ]
    return ", ".join(part for part in parts if part)
