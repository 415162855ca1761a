"""Faults to plant in DataParallel, so that tests can show that they would be found."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.parallel import comm

from mgpubench.training.trainable import TrainableModel
from tests.simulated import collectives
from tests.simulated.accelerator import NAME

REPLICATE: Any = importlib.import_module("torch.nn.parallel.replicate")
"""The module: torch gives its name to the function in it."""


@contextmanager
def buffers_stay_behind() -> Iterator[None]:
    """Every replica gets the buffers of the first device themselves."""

    def share(tensors: Any, devices: Sequence[int], detach: bool = False) -> Any:
        return [list(tensors) for _ in devices] if detach else cut(tensors, devices, detach)

    cut = REPLICATE._broadcast_coalesced_reshape
    with patch.object(REPLICATE, "_broadcast_coalesced_reshape", share):
        yield


@contextmanager
def buffers_are_blank() -> Iterator[None]:
    """The other replicas get buffers in which nothing was written."""

    def blank(tensors: Any, devices: Sequence[int], detach: bool = False) -> Any:
        copies = cut(tensors, devices, detach)
        if detach:
            copies[1:] = [[torch.zeros_like(tensor) for tensor in each] for each in copies[1:]]
        return copies

    cut = REPLICATE._broadcast_coalesced_reshape
    with patch.object(REPLICATE, "_broadcast_coalesced_reshape", blank):
        yield


@contextmanager
def gradients_are_not_summed() -> Iterator[None]:
    """Only those of the first replica are kept."""

    def keep_first(inputs: Any, destination: Any = None, buffer_size: int = 0) -> Any:
        return tuple(tensor.clone() for tensor in inputs[0])

    with patch.object(comm, "reduce_add_coalesced", keep_first):
        yield


@contextmanager
def outputs_are_swapped() -> Iterator[None]:
    """The outputs of the last replica come first."""

    def backwards(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None) -> Tensor:
        return collectives.gather(tensors[::-1], dim, destination)

    with patch.object(comm, "gather", backwards):
        yield


@contextmanager
def autocast_is_outside() -> Iterator[None]:
    """Autocast around DataParallel, as most tutorials have it, and not inside the module."""
    call = torch.nn.DataParallel.forward

    def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        with torch.autocast(NAME, dtype=torch.bfloat16):
            return call(self, *inputs, **kwargs)

    is_enabled = torch.is_autocast_enabled

    def asks_this_device(device_type: str = NAME) -> bool:
        """Without a name torch asks CUDA."""
        return is_enabled(device_type)

    with (
        patch.object(torch.nn.DataParallel, "forward", forward),
        patch.object(TrainableModel, "_autocast", lambda self, device_type: nullcontext()),
        patch.object(torch, "is_autocast_enabled", asks_this_device),
    ):
        yield


FAULTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "": nullcontext,
    "buffers stay behind": buffers_stay_behind,
    "buffers are blank": buffers_are_blank,
    "gradients are not summed": gradients_are_not_summed,
    "outputs are swapped": outputs_are_swapped,
    "autocast is outside": autocast_is_outside,
}
