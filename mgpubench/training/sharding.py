"""Weights that are shared out over the ranks: in which units, and how parts become whole."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from mgpubench.config.run_config import RunConfig
from mgpubench.errors import RequestRefused
from mgpubench.training.devices import Part
from mgpubench.training.preflight import make_on_meta
from mgpubench.training.technique import Wrapped
from mgpubench.training.trainable import TrainableModel, build_model

MIN_UNIT = 2**18
"""Parameters of the smallest unit: 1 MiB in fp32, as DDP's first bucket. Smaller ones would make
many small exchanges."""

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)

FSDP = "torch.distributed.fsdp"


def units_of(model: nn.Module) -> list[nn.Module]:
    """The parts of a model whose weights are gathered together.

    A unit is a member of an nn.Sequential, nn.ModuleList or nn.ModuleDict with at least MIN_UNIT
    parameters, such as a block of a ResNet or of a ViT. The outermost one counts, but a plain
    nn.Sequential, ModuleList or ModuleDict is no unit: its members are. A part that shares a weight
    with another part is no unit either. What is in no unit belongs to the model as a whole, which
    keeps it gathered from the forward pass to the backward pass.
    """
    uses = Counter(id(weight) for weight in _all_weights(model))
    return list(_units_below(model, uses))


def _units_below(module: nn.Module, uses: Counter[int]) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(module, CONTAINERS) and _can_be_unit(child, uses):
            yield child
        else:
            yield from _units_below(child, uses)


def _can_be_unit(module: nn.Module, uses: Counter[int]) -> bool:
    if type(module) in CONTAINERS or sum(w.numel() for w in module.parameters()) < MIN_UNIT:
        return False
    inside = Counter(id(weight) for weight in _all_weights(module))
    return all(uses[weight] == count for weight, count in inside.items())


def _all_weights(module: nn.Module) -> Iterator[Tensor]:
    """Every parameter, as often as the model uses it."""
    for _, weight in module.named_parameters(remove_duplicate=False):
        yield weight


def whole_of(tensor: Tensor) -> Tensor:
    """The whole of a tensor of which each rank has a part. All ranks must ask together."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def part_of(whole: Tensor, own: Tensor) -> Tensor:
    """The part of a whole tensor that this rank keeps, if it has a part of `own`."""
    from torch.distributed.tensor import DTensor

    if not isinstance(own, DTensor):
        return whole
    mesh, rows = own.device_mesh, len(own.to_local())
    # All ranks but the last ones have as many rows.
    start = min(len(whole), mesh.get_local_rank() * math.ceil(len(whole) / mesh.size()))
    return DTensor.from_local(
        whole[start : start + rows].to(own.device, copy=True),
        mesh,
        own.placements,
        run_check=False,
        shape=own.shape,
        stride=own.stride(),
    )


@torch.no_grad()
def whole_model(part: Part, wrapped: Wrapped) -> TrainableModel:
    """A model that can be called without other ranks. All ranks must ask for it together.

    Where weights are shared out, it is a copy with whole weights.
    """
    if not wrapped.is_sharded:
        return wrapped.plain
    copy = build_model(part)
    for theirs, own in (
        (wrapped.plain.parameters(), copy.parameters()),
        (wrapped.plain.buffers(), copy.buffers()),
    ):
        for tensor, target in zip(theirs, own, strict=True):
            target.copy_(wrapped.whole_of(tensor))
    return copy


def check_sharding(config: RunConfig) -> None:
    """Look for torch's fully_shard, and for weights that it cannot share out.

    Raises:
        RequestRefused: if this torch does not have it, or the model has such weights.
    """
    try:
        found = hasattr(importlib.import_module(FSDP), "fully_shard")
    except ImportError:
        found = False
    if not found:
        raise RequestRefused(
            f"--mode fsdp needs {FSDP}.fully_shard, which torch {torch.__version__} does not have",
            "Use torch 2.6 or newer, built with torch.distributed; or leave fsdp out of --mode.",
        )
    scalars = [name for name, p in make_on_meta(config).named_parameters() if not p.dim()]
    if scalars:
        raise RequestRefused(
            f"--mode fsdp cannot share out {', '.join(scalars)} of --model {config.model}: a "
            "single number without a dimension",
            "Give it the shape (1,), or leave fsdp out of --mode.",
        )
