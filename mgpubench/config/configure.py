"""The configurations of a request on a machine: every mode on every number of devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mgpubench.config.device_choice import default_precision
from mgpubench.config.machine_facts import Machine, NodeDevices, omp_num_threads
from mgpubench.config.mode_checks import NOT_COMPILED, TUNED_AGAIN
from mgpubench.config.preset import SMOKE, STANDARD, Preset
from mgpubench.config.request import Request
from mgpubench.config.run_config import DdpOptions, RunConfig, default_backend
from mgpubench.config.types import (
    DEFAULT_MODES,
    MAX_DEFAULT_WORKERS,
    MULTI_PROCESS_MODES,
    DeviceType,
    EffectiveMode,
    Mode,
    default_image_size,
)

Spread = tuple[int, ...]
"""Devices on each machine that takes part, beginning with the first."""

SPIN_UP_S = 2.0
"""On GPUs: idle clocks need one to two seconds to rise."""

PRESET_DEVICES = 2
"""Devices on a CPU, and in a smoke run on GPUs if there are so many."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A request and the devices it will use, before modes and device counts are combined."""

    request: Request
    machine: Machine
    device_type: DeviceType
    num_classes: int
    others: tuple[NodeDevices, ...] = ()
    """The other machines of a session on several."""

    @property
    def fell_back_to_cpu(self) -> bool:
        """True if GPUs would have been used, and there are none."""
        return self.device_type == "cpu" and not self.request.wants_cpu

    @property
    def preset(self) -> Preset:
        """The values of the options that are not given."""
        return SMOKE if self.request.smoke or self.fell_back_to_cpu else STANDARD

    @property
    def counts(self) -> tuple[int, ...]:
        """Device counts of all modes but single, which always takes one."""
        if self.request.gpus is not None:
            return self.request.gpus
        if self.request.modes == ("single",):
            return (1,)
        if self.device_type == "cpu":
            return (PRESET_DEVICES,)
        visible = self.machine.num_gpus
        return (min(PRESET_DEVICES, visible) if self.request.smoke else visible,)

    @property
    def machines(self) -> tuple[Machine, ...]:
        """All machines, in the order of the ranks."""
        return (self.machine, *(other.machine for other in self.others))

    @property
    def spreads(self) -> tuple[Spread, ...]:
        """What modes with several processes take on each machine, for each of the counts."""
        return tuple(zip(self.counts, *(other.counts for other in self.others), strict=True))

    @property
    def usable_cores_per_device(self) -> int:
        """Cores for each device of the largest count, on the machine with the fewest."""
        counts = (self.counts, *(other.counts for other in self.others))
        return min(
            machine.usable_cores // max(of_machine)
            for machine, of_machine in zip(self.machines, counts, strict=True)
        )


def combinations(draft: Draft, notices: list[str]) -> Iterator[tuple[Mode, Spread]]:
    """The modes to run, and devices on each machine; `notices` gets what the user should know."""
    modes = draft.request.modes or DEFAULT_MODES
    if "dp" in modes and (reason := _why_without_dp(draft)):
        notices.append(f"dp is left out with {reason}")
        modes = tuple(mode for mode in modes if mode != "dp")
    if "deepspeed" in modes and draft.device_type == "cpu":
        notices.append(
            "deepspeed compiles a part of itself before the first run, which takes half a minute"
        )
    if "single" in modes:
        yield "single", (1,)
    for spread in draft.spreads:
        count = spread[0]
        if "dp" in modes and count == 1 and draft.request.modes is None:
            notices.append(
                "dp is left out on one device, where torch.nn.DataParallel just calls the "
                "module; name it with --mode dp to run it anyway"
            )
        elif "dp" in modes:
            if count == 1:
                notices.append(
                    "dp on one device is a bare pass-through to the module "
                    "(effective_mode=passthrough): it measures nothing of DataParallel"
                )
            yield "dp", (count,)
        for mode in (mode for mode in MULTI_PROCESS_MODES if mode in modes):
            if spread == (1,) and mode != "ddp":
                notices.append(
                    f"{mode} on one device has nothing to share out: it measures what its copies "
                    "cost"
                )
            yield mode, spread


def _why_without_dp(draft: Draft) -> str:
    """Which option dp cannot have, and why; empty if there is none."""
    if draft.request.compiled:
        return f"--compile: {NOT_COMPILED['dp']}"
    if draft.request.cudnn_benchmark and draft.device_type == "cuda":
        return f"--cudnn-benchmark: {TUNED_AGAIN}"
    return ""


def configure(draft: Draft, mode: Mode, spread: Spread) -> RunConfig:
    """The configuration of one mode on devices of each machine, as a run in round 1."""
    request, preset, count = draft.request, draft.preset, sum(spread)
    model = request.model or preset.model
    workers = _workers_per_device(draft)
    warmup_steps = _warmup_steps(draft)
    return RunConfig(
        round=1,
        position=1,
        **_processes(draft, mode, spread),
        **{name: getattr(request, name) for name in COPIED_FROM_REQUEST},
        model=model,
        num_classes=draft.num_classes,
        image_size=request.image_size or preset.image_size or default_image_size(model),
        precision=request.precision or default_precision(draft.machine, draft.device_type),
        batch_per_device=_batch_per_device(draft, count),
        workers_per_device=workers,
        workers_per_rank=workers * _loader_shares(draft, mode, count),
        ddp=request.ddp if mode == "ddp" else DdpOptions(),
        # Without warm-up steps it is the first step that is wanted, as cold as it is.
        spin_up_s=SPIN_UP_S if draft.device_type == "cuda" and warmup_steps else 0.0,
        warmup_steps=warmup_steps,
        steps=request.steps or preset.steps,
        seed=request.seed or 0,
    )


COPIED_FROM_REQUEST = (
    "variant", "variant_number", "env", "data", "skip_bad_images", "channels_last", "compiled",
    "scaling", "cudnn_benchmark", "timeout_s", "accumulate", "optimizer", "log_every",
)  # fmt: skip


def _processes(draft: Draft, mode: Mode, spread: Spread) -> dict[str, Any]:
    """The fields about processes, devices and threads."""
    request, machine = draft.request, draft.machine
    count = sum(spread)
    has_group = mode in MULTI_PROCESS_MODES
    ranks = spread if has_group else (1,)
    threads = omp_num_threads(dict(request.env)) or machine.omp_num_threads
    effective_mode = _effective_mode(draft, mode, spread)
    backend = request.backend or default_backend(effective_mode, draft.device_type)
    on_cuda = draft.device_type == "cuda"
    return {
        "mode": mode,
        "effective_mode": effective_mode,
        "device_type": draft.device_type,
        "num_devices": count,
        "device_indices": _device_indices(draft, spread) if on_cuda else (),
        "devices_per_node": spread if len(spread) > 1 else (),
        "world_size": sum(ranks),
        "backend": backend if has_group else "",
        "threads_per_rank": threads or _threads_per_rank(draft, ranks),
    }


def _device_indices(draft: Draft, spread: Spread) -> tuple[int, ...]:
    return tuple(
        index % machine.num_gpus
        for machine, count in zip(draft.machines, spread, strict=False)
        for index in range(count)
    )


def _threads_per_rank(draft: Draft, ranks: Spread) -> int:
    """Equal on all machines, so that all ranks do equal work: what the smallest share allows."""
    shares = zip(draft.machines, ranks, strict=False)
    return max(1, min(machine.usable_cores // count for machine, count in shares))


def _warmup_steps(draft: Draft) -> int:
    """On GPUs the standard number at least: a smoke run's would be too few for DDP."""
    if draft.request.warmup_steps is not None:
        return draft.request.warmup_steps
    if draft.device_type == "cuda":
        return max(draft.preset.warmup_steps, STANDARD.warmup_steps)
    return draft.preset.warmup_steps


def _batch_per_device(draft: Draft, count: int) -> int:
    if draft.request.global_batch is not None:
        return draft.request.global_batch // count
    return (draft.request.batch_per_gpu or draft.preset.batch_per_gpu) * draft.request.accumulate


def _workers_per_device(draft: Draft) -> int:
    if draft.request.workers_per_gpu is not None:
        return draft.request.workers_per_gpu
    return max(1, min(MAX_DEFAULT_WORKERS, draft.usable_cores_per_device))


def _loader_shares(draft: Draft, mode: Mode, count: int) -> int:
    """For how many devices one process of this mode starts loader workers.

    Single starts those of one device in weak scaling, where it takes the batch of one device, and
    those of the largest count in strong scaling, where it takes the whole global batch.
    """
    if mode in MULTI_PROCESS_MODES:
        return 1
    if mode == "dp":
        return count
    return max(draft.counts) if draft.request.scaling == "strong" else 1


def _effective_mode(draft: Draft, mode: Mode, spread: Spread) -> EffectiveMode:
    if mode == "dp" and spread == (1,):
        return "passthrough"
    if mode == "dp" and draft.device_type == "cpu":
        return "cpu-replicas"
    shares = zip(draft.machines, spread, strict=False)
    if draft.device_type == "cuda" and any(count > machine.num_gpus for machine, count in shares):
        return "oversubscribed"
    return mode
