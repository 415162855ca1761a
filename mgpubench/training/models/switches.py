"""Torch's own switches that a user's module may turn for the whole process, and that cost time.

`torch_settings` sets those that a row shows. The others must be as torch has them, in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from mgpubench.launch.switches import OF_MODULES, Switch

ATTRIBUTES = (
    *((torch.backends.cudnn, name) for name in ("enabled", "deterministic", "benchmark_limit")),
    (torch.backends.cudnn, "benchmark"),
    *((torch.backends.mkldnn, name) for name in ("enabled", "deterministic")),
    *(
        (torch.backends.cuda.matmul, f"allow_{name}")
        for name in (
            "fp16_reduced_precision_reduction",
            "bf16_reduced_precision_reduction",
            "fp16_accumulation",
        )
    ),
    *((torch.backends.opt_einsum, name) for name in ("enabled", "strategy")),
)
"""Switches that are attributes. Older versions of torch lack some."""

FUNCTIONS = (
    (torch, "get_default_dtype", "set_default_dtype"),
    (torch, "is_grad_enabled", "set_grad_enabled"),
    (torch, "is_warn_always_enabled", "set_warn_always"),
    (torch, "is_autocast_cache_enabled", "set_autocast_cache_enabled"),
    (torch._C, "_is_multithreading_enabled", "_set_multithreading_enabled"),
    (torch._C, "_get_nnpack_enabled", "_set_nnpack_enabled"),
    (torch.backends.mha, "get_fastpath_enabled", "set_fastpath_enabled"),
    (torch.backends.cuda, "flash_sdp_enabled", "enable_flash_sdp"),
    (torch.backends.cuda, "mem_efficient_sdp_enabled", "enable_mem_efficient_sdp"),
    (torch.backends.cuda, "math_sdp_enabled", "enable_math_sdp"),
    (torch.backends.cuda, "cudnn_sdp_enabled", "enable_cudnn_sdp"),
    (
        torch.backends.cuda,
        "fp16_bf16_reduction_math_sdp_allowed",
        "allow_fp16_bf16_reduction_math_sdp",
    ),
    (torch.distributed, "get_debug_level", "set_debug_level"),
)
"""Switches with a function to read and one to write, which older versions of torch may lack."""

AUTOCAST_DEVICES = ("cuda", "cpu")


def _torch_switches() -> Iterator[Switch]:
    for owner, name in ATTRIBUTES:
        if hasattr(owner, name):
            yield _of_attribute(owner, name)
    for owner, read, write in FUNCTIONS:
        if hasattr(owner, read) and hasattr(owner, write):
            yield Switch(read, getattr(owner, read), getattr(owner, write))
    for device in AUTOCAST_DEVICES:
        yield _of_autocast(device)
    yield Switch("default device", _device_context, _set_device_context)
    yield Switch("anomaly detection", _anomaly_detection, _set_anomaly_detection)
    yield Switch("deterministic algorithms", _determinism, _set_determinism)
    yield Switch("current GPU", _current_gpu, _set_current_gpu)


def _of_attribute(owner: Any, name: str) -> Switch:
    return Switch(
        f"{owner!r}.{name}",
        lambda: getattr(owner, name),
        lambda value: setattr(owner, name, value),
    )


def _of_autocast(device: str) -> Switch:
    def write(value: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(device, value[0])
        torch.set_autocast_dtype(device, value[1])

    return Switch(
        f"autocast on {device}",
        lambda: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)),
        write,
    )


def _device_context() -> Any:
    """The context of the default device, which takes time in every call; None without one."""
    return getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)


def _set_device_context(context: Any) -> None:
    torch.set_default_device(None if context is None else context.device)


def _anomaly_detection() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _set_anomaly_detection(value: tuple[bool, bool]) -> None:
    # Not the context manager of torch.autograd, which would put its own old value back.
    torch.set_anomaly_enabled(*value)


def _determinism() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def _set_determinism(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _current_gpu() -> int | None:
    return torch.cuda.current_device() if torch.cuda.is_initialized() else None


def _set_current_gpu(number: int | None) -> None:
    if number is not None:
        torch.cuda.set_device(number)


SWITCHES = (*OF_MODULES, *_torch_switches())
"""All that is set back when a user's module has been imported, and when its function returns."""
