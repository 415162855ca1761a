"""What about the GPUs will hurt a benchmark; `advice` examines the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from mgpubench.config.architectures import has_code_for
from mgpubench.config.machine_facts import Machine
from mgpubench.machine.nvidia_smi import EXIT_CODES, HELD_BACK
from mgpubench.machine.system import Survey, TorchBuild
from mgpubench.results.clock_reasons import THROTTLING, names_of_reasons

MUCH_MIB = 2048
"""Memory in use on a GPU, above what a desktop or the driver itself takes."""

States = list[tuple[int, dict[str, str]]]
"""Torch's number of a GPU, and what nvidia-smi says about it."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One problem, and what to do about it."""

    code: str
    message: str
    remedy: str


def examine_gpus(survey: Survey) -> Iterator[Advice]:
    """Advice about the GPUs: their number, the links between them, and their present state."""
    machine, build = survey.machine, survey.build
    if machine and not machine.gpus:
        reason = f"torch cannot use a GPU: {machine.cuda_reason}"
        yield Advice("no-gpu", reason, _how_to_get_a_gpu(machine))
    if machine and build and machine.gpus:
        yield from _choice(machine)
        yield from _without_code(machine, build)
        yield from _links(machine, build)
    yield from _nvidia_smi(survey.system.nvidia_smi_exit_code)
    yield from _gpu_state(survey)


def _how_to_get_a_gpu(machine: Machine) -> str:
    driver, visible = machine.driver_version, machine.cuda_visible_devices
    if not machine.cuda_version:
        return "This torch was built without CUDA: install a CUDA build."
    if driver and "too old" in machine.cuda_reason:
        return f"The driver is {driver}: update it, or install a torch for an older CUDA."
    if visible is not None:
        return (
            f"CUDA_VISIBLE_DEVICES={visible} may hide the GPUs: unset it, or name GPUs that exist."
        )
    if driver:
        return "The driver works: nvidia-smi and dmesg may say more."
    return (
        "Install NVIDIA's driver, or start the container with --gpus all; nvidia-smi must work. "
        "Without any GPU: mgpubench run --smoke."
    )


def _choice(machine: Machine) -> Iterator[Advice]:
    """Advice about the GPUs that torch may use together."""
    if machine.num_gpus == 1:
        yield Advice(
            "one-gpu",
            "only one GPU is usable: dp just calls the module, and ddp has only one rank",
            "Make more visible with CUDA_VISIBLE_DEVICES; a process sees only one MIG slice.",
        )
    if len(names := sorted({gpu.name for gpu in machine.gpus})) > 1:
        yield Advice(
            "mixed-gpus",
            f"the GPUs are of different models ({', '.join(names)}): the slowest sets the pace",
            "Choose equal ones with CUDA_VISIBLE_DEVICES.",
        )


def _without_code(machine: Machine, build: TorchBuild) -> Iterator[Advice]:
    """Advice about GPUs that torch was not built for."""
    for gpu in machine.gpus:
        if not has_code_for(gpu, build.cuda_architectures):
            yield Advice(
                "old-build",
                f"this torch has no code for {gpu.name} (sm_{gpu.capability[0]}"
                f"{gpu.capability[1]}; it has {', '.join(build.cuda_architectures)})",
                "Install a torch that is built for this GPU.",
            )


def _links(machine: Machine, build: TorchBuild) -> Iterator[Advice]:
    """Advice about how GPUs exchange data."""
    if build.without_peer_access:
        first, second = build.without_peer_access[0]
        yield Advice(
            "no-peer-access",
            f"GPU {first} cannot reach the memory of GPU {second} (so for "
            f"{len(build.without_peer_access)} of {machine.num_gpus * (machine.num_gpus - 1)} "
            "directions): their traffic goes through the host",
            "NVLink or peer access over PCIe would help; many consumer GPUs have neither, and an "
            "enabled IOMMU (ACS) disables it.",
        )
    if "nccl" not in build.backends:
        yield Advice(
            "no-nccl",
            "this torch has no NCCL: ddp can only use gloo, which goes through the host",
            "Install a CUDA build of torch for Linux.",
        )


def _nvidia_smi(exit_code: int | None) -> Iterator[Advice]:
    if exit_code:
        known = f" ({EXIT_CODES[exit_code]})" if exit_code in EXIT_CODES else ""
        yield Advice(
            "nvidia-smi",
            f"nvidia-smi answers, and exits with code {exit_code}{known}",
            "Look at the last lines that it prints, and at dmesg.",
        )


def _gpu_state(survey: Survey) -> Iterator[Advice]:
    visible = _visible_states(survey)
    yield from _busy(visible, survey.system.gpu_processes)
    yield from _memory_in_use(visible, survey.system.gpu_processes)
    # The same advice about several GPUs becomes one line.
    alike: dict[Advice, list[str]] = {}
    for number, state in visible:
        for advice in _held_back(state):
            alike.setdefault(advice, []).append(f"GPU {number}")
    for advice, names in alike.items():
        yield replace(advice, message=f"{', '.join(names)}: {advice.message}")


def _busy(visible: States, processes: Collection[str]) -> Iterator[Advice]:
    busy = [f"GPU {number}" for number, state in visible if state.get("uuid") in processes]
    if busy:
        yield Advice(
            "busy-gpu",
            f"processes compute on {', '.join(busy)}",
            "Benchmark on idle GPUs; nvidia-smi shows the processes.",
        )


def _memory_in_use(visible: States, processes: Collection[str]) -> Iterator[Advice]:
    """Advice about memory that no process seems to hold."""
    used = [
        f"{mib / 1024:.1f} GB of GPU {number}"
        for number, state in visible
        if (mib := _number(state, "memory.used") or 0) >= MUCH_MIB
        and state.get("uuid") not in processes
    ]
    if used:
        yield Advice(
            "busy-gpu",
            f"memory is in use: {', '.join(used)}",
            "Benchmark on idle GPUs; inside a container the processes may not be visible.",
        )


def _visible_states(survey: Survey) -> States:
    """The states of the GPUs that torch sees, with torch's numbers.

    nvidia-smi may number them differently, and torch omits `GPU-` from a UUID.
    """
    states = {
        state.get("uuid", "").removeprefix("GPU-"): state for state in survey.system.gpu_state
    }
    uuids = [gpu.uuid.removeprefix("GPU-") for gpu in survey.machine.gpus] if survey.machine else []
    return [(number, states[uuid]) for number, uuid in enumerate(uuids) if uuid in states]


def _held_back(state: Mapping[str, str]) -> Iterator[Advice]:
    """What slows one GPU down. The messages do not name the GPU yet."""
    mask = _number(state, HELD_BACK, 16)
    names = names_of_reasons(int(mask or 0))
    reasons = [THROTTLING[name] for name in names if name in THROTTLING]
    if reasons:
        yield Advice(
            "throttled",
            f"slowed down right now by {' and '.join(reasons)}",
            "See nvidia-smi -q -d PERFORMANCE.",
        )
    limit, default = _number(state, "power.limit"), _number(state, "power.default_limit")
    if limit is not None and default is not None and limit < default:
        yield Advice(
            "power-limit",
            f"limited to {limit:.0f} of {default:.0f} W",
            "nvidia-smi -pl sets it (root).",
        )
    now, most = _number(state, "pcie.link.width.current"), _number(state, "pcie.link.width.max")
    if now is not None and most is not None and now < most:
        yield Advice(
            "narrow-link",
            f"{now:.0f} of {most:.0f} PCIe lanes in use",
            "Another slot or riser may provide all of them.",
        )


def _number(state: Mapping[str, str], name: str, base: int = 10) -> float | None:
    """A value of nvidia-smi without its unit; None if unknown."""
    text = state.get(name, "").partition(" ")[0]
    try:
        return int(text, 16) if base == 16 else float(text)
    except ValueError:
        return None
