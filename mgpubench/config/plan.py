"""From a request and a machine to the list of runs, in the order in which they are made."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mgpubench.config.device_choice import (
    TENSOR_FLOAT_CAPABILITY,
    check_options,
    choose_device,
    has_tf32,
    why_no_gpu,
)
from mgpubench.config.machine_facts import Machine
from mgpubench.config.order import draw_order
from mgpubench.config.request import SMOKE, STANDARD, Preset, Request, check_divisible
from mgpubench.config.run_config import DdpOptions, RunConfig, default_backend
from mgpubench.config.types import (
    MAX_DEFAULT_WORKERS,
    MODES,
    NUM_SYNTHETIC_CLASSES,
    DeviceType,
    EffectiveMode,
    Mode,
    default_image_size,
)
from mgpubench.errors import RequestRefused
from mgpubench.format import format_count

PRESET_DEVICES = 2
"""Devices on a CPU, and in a smoke run on GPUs if there are so many."""

MAX_RUNS = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The runs of a session in their order, and what the user should know about them."""

    runs: tuple[RunConfig, ...]
    notices: tuple[str, ...]


def make_plan(request: Request, machine: Machine, num_classes: int = NUM_SYNTHETIC_CLASSES) -> Plan:
    """Turn a request into runs, for a machine and a number of classes.

    Raises:
        RequestRefused: if this machine cannot do what was requested.
    """
    draft = _Draft(request, machine, choose_device(request, machine), num_classes)
    check_options(request, machine, draft.device_type)
    notices = []
    if draft.fell_back_to_cpu:
        notices.append(
            f"no usable GPU ({why_no_gpu(machine)}): running on the CPU, with "
            "the --smoke values for every option not given"
        )
    for count in draft.counts:
        check_divisible(request.global_batch, count)
    configurations = [
        _configure(draft, mode, count) for mode, count in _combinations(draft, notices)
    ]
    if request.warmup_steps is None:
        configurations = _lengthen_warmup(configurations, notices)
    notices += _mixed_gpus(configurations, machine)
    notices += _emulated(configurations, machine)
    notices += _many_workers(configurations, machine)
    rounds = request.rounds or draft.preset.rounds
    if rounds * len(configurations) > MAX_RUNS:
        raise RequestRefused(f"--rounds {rounds} makes more than {MAX_RUNS} runs")
    order = draw_order(len(configurations), rounds, random.Random(request.seed))
    runs = tuple(
        replace(configurations[index], round=1 + i // len(configurations), position=1 + i)
        for i, index in enumerate(order)
    )
    return Plan(runs=runs, notices=tuple(notices))


@dataclass(frozen=True, slots=True)
class _Draft:
    """A request and the devices it will use, before modes and device counts are combined."""

    request: Request
    machine: Machine
    device_type: DeviceType
    num_classes: int

    @property
    def fell_back_to_cpu(self) -> bool:
        return self.device_type == "cpu" and not self.request.wants_cpu

    @property
    def preset(self) -> Preset:
        return SMOKE if self.request.smoke or self.fell_back_to_cpu else STANDARD

    @property
    def counts(self) -> tuple[int, ...]:
        """Device counts of dp and ddp; single always takes one."""
        if self.request.gpus is not None:
            return self.request.gpus
        if self.request.modes == ("single",):
            return (1,)
        if self.device_type == "cpu":
            return (PRESET_DEVICES,)
        visible = self.machine.num_gpus
        return (min(PRESET_DEVICES, visible) if self.request.smoke else visible,)


def _combinations(draft: _Draft, notices: list[str]) -> Iterator[tuple[Mode, int]]:
    modes = draft.request.modes or MODES
    if draft.request.compiled and "dp" in modes:
        notices.append(
            "dp is left out with --compile, which does not work reliably in its replicas"
        )
        modes = tuple(mode for mode in modes if mode != "dp")
    if "single" in modes:
        yield "single", 1
    for count in draft.counts:
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
            yield "dp", count
        if "ddp" in modes:
            yield "ddp", count


def _configure(draft: _Draft, mode: Mode, count: int) -> RunConfig:
    request, machine, preset = draft.request, draft.machine, draft.preset
    model = request.model or preset.model
    world_size = count if mode == "ddp" else 1
    effective_mode = _effective_mode(draft, mode, count)
    workers = _workers_per_device(draft)
    on_cuda = draft.device_type == "cuda"
    backend = request.backend or default_backend(effective_mode, draft.device_type)
    return RunConfig(
        round=1,
        position=1,
        mode=mode,
        effective_mode=effective_mode,
        device_type=draft.device_type,
        num_devices=count,
        device_indices=tuple(i % machine.num_gpus for i in range(count)) if on_cuda else (),
        world_size=world_size,
        backend=backend if mode == "ddp" else "",
        model=model,
        num_classes=draft.num_classes,
        data=request.data,
        skip_bad_images=request.skip_bad_images,
        image_size=request.image_size or preset.image_size or default_image_size(model),
        precision=request.precision or ("tf32" if has_tf32(machine, draft.device_type) else "fp32"),
        channels_last=request.channels_last,
        compiled=request.compiled,
        scaling=request.scaling,
        batch_per_device=_batch_per_device(draft, count),
        workers_per_device=workers,
        workers_per_rank=workers * _loader_shares(draft, mode, count),
        threads_per_rank=machine.omp_num_threads or max(1, machine.usable_cores // world_size),
        cudnn_benchmark=request.cudnn_benchmark,
        ddp=request.ddp if mode == "ddp" else DdpOptions(),
        warmup_steps=preset.warmup_steps if request.warmup_steps is None else request.warmup_steps,
        steps=request.steps or preset.steps,
        seed=request.seed or 0,
        timeout_s=request.timeout_s,
    )


def _lengthen_warmup(configurations: list[RunConfig], notices: list[str]) -> list[RunConfig]:
    """Give all runs a warm-up that is long enough to use up every loader's queue.

    Otherwise the window would begin with batches that were loaded before it. DataParallel has the
    longest queue, since its one loader has the workers of all devices.
    """
    longest = max(config.queue_length for config in configurations)
    if longest <= configurations[0].warmup_steps:
        return configurations
    notices.append(
        f"{longest} warm-up steps instead of {configurations[0].warmup_steps}, to use up the "
        "batches that the loaders prepare before the window"
    )
    return [replace(config, warmup_steps=longest) for config in configurations]


def _many_workers(configurations: Sequence[RunConfig], machine: Machine) -> Iterator[str]:
    """One warning for the plan, instead of torch's warning from every rank."""
    largest = max(configurations, key=lambda config: config.total_workers)
    if largest.queue_length and largest.total_workers > machine.usable_cores:
        # Single may have the workers of several devices: see `_loader_shares`.
        shares = largest.total_workers // largest.workers_per_device
        yield (
            f"{format_count(largest.workers_per_device, 'loader worker')} x {shares} devices = "
            f"{largest.total_workers} share {machine.usable_cores} cores; a smaller "
            "--workers-per-gpu may load faster"
        )


def _mixed_gpus(configurations: Sequence[RunConfig], machine: Machine) -> Iterator[str]:
    used = {index for config in configurations for index in config.device_indices}
    names = sorted({machine.gpus[index].name for index in used})
    if len(names) > 1:
        yield (
            f"the GPUs are of different models ({', '.join(names)}): every step takes as long as "
            "on the slowest of them"
        )


def _emulated(configurations: Sequence[RunConfig], machine: Machine) -> Iterator[str]:
    used = {index for config in configurations for index in config.device_indices}
    is_new = all(machine.gpus[index].capability >= TENSOR_FLOAT_CAPABILITY for index in used)
    if configurations[0].precision == "amp-bf16" and not is_new:
        yield (
            "bf16 is emulated on GPUs below compute capability 8.0: amp-bf16 will be slow, "
            "and says nothing about newer GPUs"
        )


def _batch_per_device(draft: _Draft, count: int) -> int:
    if draft.request.global_batch is not None:
        return draft.request.global_batch // count
    return draft.request.batch_per_gpu or draft.preset.batch_per_gpu


def _workers_per_device(draft: _Draft) -> int:
    if draft.request.workers_per_gpu is not None:
        return draft.request.workers_per_gpu
    return max(1, min(MAX_DEFAULT_WORKERS, draft.machine.usable_cores // max(draft.counts)))


def _loader_shares(draft: _Draft, mode: Mode, count: int) -> int:
    """For how many devices one process of this mode starts loader workers.

    Single starts those of one device in weak scaling, where it takes the batch of one device, and
    those of the largest count in strong scaling, where it takes the whole global batch.
    """
    if mode == "ddp":
        return 1
    if mode == "dp":
        return count
    return max(draft.counts) if draft.request.scaling == "strong" else 1


def _effective_mode(draft: _Draft, mode: Mode, count: int) -> EffectiveMode:
    if mode == "dp" and count == 1:
        return "passthrough"
    if mode == "dp" and draft.device_type == "cpu":
        return "cpu-replicas"
    if draft.device_type == "cuda" and count > draft.machine.num_gpus:
        return "oversubscribed"
    return mode
