"""Four pretended devices, `sim:0` to `sim:3`: CPU tensors that wear a device and do not mix.

Torch's own DataParallel runs on them: scatter, replicate, the threads of its replicas, gather, and
autograd with a thread for each device. It is replaced only where torch's C++ code knows nothing but
CUDA: see `collectives`. Nothing here says anything about speed, streams, memory or NCCL.

`pretend` is called once in a process, before its first backward pass, since autograd then counts
the devices. So it needs a process of its own, see `server`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

NAME = "sim"
NUM_DEVICES = 4

BETWEEN_DEVICES = {
    "aten._to_copy.default",
    "aten.copy_.default",
    "aten._foreach_copy_.default",
}
"""The only operations that may have tensors on several devices."""

_kept: list[object] = []
"""What torch only refers to, and what must live as long as the process."""


class NotPossible(Exception):
    """This torch cannot have devices that are made in Python."""


class PretendedTensor(Tensor):
    """A tensor that computes on the CPU, and says that it lives on a pretended device."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor, device: torch.device) -> PretendedTensor:
        made: PretendedTensor = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=device,
        )
        made.inner = inner
        return made

    def __init__(self, inner: Tensor, device: torch.device) -> None:
        pass

    # With these two a module that moves here keeps its parameters, and so those that are tied.
    def __tensor_flatten__(self) -> tuple[list[str], torch.device]:
        return ["inner"], self.device

    @staticmethod
    def __tensor_unflatten__(inner: Any, device: Any, size: Any, stride: Any) -> PretendedTensor:
        return PretendedTensor(inner["inner"], device)

    @classmethod
    def __torch_dispatch__(
        cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Do an operation on the CPU, if all its tensors are on one device.

        Raises:
            RuntimeError: if they are not, with the operation and the devices.
        """
        kwargs = dict(kwargs or {})
        target = _target(operation, args, kwargs)
        if target.type == NAME and "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        result = operation(*tree_map(bare, args), **tree_map(bare, kwargs))
        if target.type != NAME:
            return result
        own = [id(bare(leaf)) for leaf in tree_leaves((args, kwargs))]

        def dress(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor) or isinstance(leaf, PretendedTensor):
                return leaf
            if str(operation) == "aten._to_copy.default" and id(leaf) in own:
                leaf = leaf.clone()  # the CPU found nothing to copy, and there is another device
            return PretendedTensor(leaf, target)

        return return_and_correct_aliasing(operation, args, kwargs, tree_map(dress, result))


def bare(value: Any) -> Any:
    """The CPU tensor inside a pretended one; anything else as it is."""
    return value.inner if isinstance(value, PretendedTensor) else value


def _target(operation: Any, args: Any, kwargs: dict[str, Any]) -> torch.device:
    """The device of an operation's result.

    Raises:
        RuntimeError: if its tensors are on several devices.
    """
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    # As on CUDA, a number on the CPU may meet tensors on any device.
    places = {tensor.device for tensor in tensors if tensor.device.type == NAME or tensor.dim()}
    name = str(operation)
    if len(places) > 1 and name not in BETWEEN_DEVICES:
        found = ", ".join(sorted(map(str, places)))
        # The first words are CUDA's own.
        raise RuntimeError(f"Expected all tensors to be on the same device, and {name} got {found}")
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"])
    if name == "aten.copy_.default":
        first: Tensor = args[0]
        return first.device
    return next(tensor.device for tensor in tensors if tensor.device.type == NAME)


class _Backend:
    """What torch asks of `torch.sim`, as it asks `torch.cuda`."""

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def is_initialized() -> bool:
        return True

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def device_count() -> int:
        return NUM_DEVICES

    @staticmethod
    def current_device() -> int:
        return torch.accelerator.current_device_index()

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """The devices draw from the CPU's generator."""

    @staticmethod
    def get_rng_state(device: object = None) -> Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: Tensor, device: object = None) -> None:
        torch.set_rng_state(state)

    device = torch.accelerator.device_index


def pretend(library: Path) -> None:
    """Give this process the pretended devices; `library` is the device guard that was built.

    Raises:
        NotPossible: if this torch cannot have such devices.
    """
    hooks = getattr(getattr(torch._C, "_acc", None), "PrivateUse1Hooks", None)
    if hooks is None:
        raise NotPossible(f"torch {torch.__version__} has no hooks for devices made in Python")

    class Hooks(hooks):  # type: ignore[misc]
        def is_available(self) -> bool:
            return True

        def is_built(self) -> bool:
            return True

        def has_primary_context(self, device: int) -> bool:
            return True

    torch.ops.load_library(str(library))
    torch.utils.rename_privateuse1_backend(NAME)
    own = Hooks()
    _kept.append(own)
    torch._register_device_module(NAME, _Backend())  # type: ignore[no-untyped-call]
    torch._C._acc.register_python_privateuseone_hook(own)
    _register_kernels()
    _register_casts()


def _register_kernels() -> None:
    """How tensors come onto a device, before there is one to dispatch on."""

    def empty(
        size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
        pin_memory: Any = None, memory_format: Any = None,
    ) -> Tensor:  # fmt: skip
        inner = torch.empty(size, dtype=dtype, memory_format=memory_format)
        return PretendedTensor(inner, torch.device(device))

    def empty_strided(
        size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
        pin_memory: Any = None,
    ) -> Tensor:  # fmt: skip
        return PretendedTensor(torch.empty_strided(size, stride, dtype=dtype), torch.device(device))

    def copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
        bare(target).copy_(bare(source))
        return target

    kernels = torch.library.Library("aten", "IMPL")
    kernels.impl("empty.memory_format", empty, "PrivateUse1")
    kernels.impl("empty_strided", empty_strided, "PrivateUse1")
    kernels.impl("_copy_from", copy_from, "PrivateUse1")
    _kept.append(kernels)


CAST_DOWN = ("conv2d", "linear", "matmul", "scaled_dot_product_attention")
CAST_UP = ("layer_norm", "softmax.int")
"""Operations that autocast on CUDA does in its lower precision, and in fp32: those of our tests."""


def _register_casts() -> None:
    """Autocast as on CUDA, which torch leaves to those who make a device."""
    every = torch.library.Library("_", "IMPL")
    every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    casts = torch.library.Library("aten", "IMPL")
    for name in (*CAST_DOWN, *CAST_UP):
        packet, _, overload = name.partition(".")
        operation = getattr(getattr(torch.ops.aten, packet), overload or "default")
        kernel = functools.partial(_cast_and_call, operation, name in CAST_DOWN)
        casts.impl(name, kernel, "AutocastPrivateUse1")
    _kept.extend((every, casts))


def _cast_and_call(operation: Callable[..., Any], down: bool, *args: Any, **kwargs: Any) -> Any:
    # The type belongs to the thread, as on CUDA, and DataParallel's threads do not inherit it.
    wanted = torch.get_autocast_dtype(NAME) if down else torch.float32

    def cast(leaf: Any) -> Any:
        is_float = isinstance(leaf, Tensor) and leaf.is_floating_point()
        return leaf.to(wanted) if is_float else leaf

    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
    with torch._C._ExcludeDispatchKeyGuard(keys):
        return operation(*tree_map(cast, args), **tree_map(cast, kwargs))


def devices(numbers: Sequence[int]) -> tuple[torch.device, ...]:
    """Some of the pretended devices, perhaps one several times."""
    return tuple(torch.device(NAME, number) for number in numbers)
