"""The three collectives of DataParallel that torch has only in C++ for CUDA, as they are there.

The fourth, `reduce_add_coalesced`, is Python, and is torch's own here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors
from torch.nn.parallel import comm

from tests.simulated.accelerator import NAME

COALESCED_BYTES = 10 * 2**20


def install() -> None:
    """Let torch's DataParallel use these."""
    comm.broadcast_coalesced = broadcast_coalesced
    comm.scatter = scatter
    comm.gather = gather


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int = COALESCED_BYTES
) -> list[list[Tensor]]:
    """The tensors themselves for the first device, and copies for each other one.

    The copies are cut from a flat buffer, so that they lose their memory format.
    """
    tensors = list(tensors)
    copies: list[list[Tensor]] = []
    for device in devices[1:]:
        copied: dict[int, Tensor] = {}
        for chunk in _take_tensors(tensors, buffer_size):
            flat = _copy(_flatten_dense_tensors(chunk), device)
            parts = _unflatten_dense_tensors(flat, chunk)
            copied.update((id(one), part.clone()) for one, part in zip(chunk, parts, strict=True))
        copies.append([copied[id(tensor)] for tensor in tensors])
    return [tensors, *copies]


def scatter(
    tensor: Tensor,
    devices: Any = None,
    chunk_sizes: Any = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Any = None,
) -> tuple[Tensor, ...]:
    """A part of a tensor for each device, as `Tensor.chunk` cuts it if no sizes are given."""
    if chunk_sizes is None:
        parts: Sequence[Tensor] = tensor.chunk(len(devices), dim)
    else:
        parts = tensor.split(list(chunk_sizes), dim)
    return tuple(part.to(_device(device)) for part, device in zip(parts, devices, strict=False))


def gather(
    tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Any = None
) -> Tensor:
    """Tensors of several devices, joined on one."""
    return torch.cat([tensor.to(_device(destination)) for tensor in tensors], dim)


def _copy(tensor: Tensor, device: int) -> Tensor:
    """Another tensor, also if it is on the same device."""
    return tensor.detach().clone().to(_device(device))


def _device(number: int) -> torch.device:
    return torch.device(NAME, number)
