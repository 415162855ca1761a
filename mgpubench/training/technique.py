"""A model as a technique has wrapped it, and what the rest of training may ask of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from mgpubench.training.devices import Part
from mgpubench.training.trainable import TrainableModel

Record = TypeVar("Record")


def nothing() -> None:
    """What one process has to do to agree with others."""


def itself(tensor: Tensor, own: Tensor | None = None) -> Tensor:
    """The sum over one process, or a tensor of which each process has the whole."""
    return tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Wrapped:
    """A model inside its technique."""

    model: nn.Module
    """What is called in a step."""
    plain: TrainableModel
    """The model without its wrapper, whose parameters are trained."""
    barrier: Callable[[], None] = nothing
    """Waits for the hosts of all ranks, and not for their devices."""
    without_sync: Callable[[], AbstractContextManager[object]] = nullcontext
    """A context in which gradients stay in this process, for all but the last of several backward
    passes of a step."""
    share_buffers: Callable[[], None] = nothing
    """Gives all ranks the buffers of rank 0."""
    sum_over_ranks: Callable[[Tensor], Tensor] = itself
    """Adds a tensor of each rank up, on all ranks."""
    is_sharded: bool = False
    """True if each rank has only a part of each weight."""
    whole_of: Callable[[Tensor], Tensor] = itself
    """The whole of a weight, or of the optimizer's state for it. All ranks must ask together."""
    part_of: Callable[[Tensor, Tensor], Tensor] = itself
    """What this rank keeps of a whole tensor, if it is to become the second one."""
    optimizer: Optimizer | None = None
    """Of the technique itself, for the measured recipe; None: torch's."""
    backward: Callable[[Tensor], object] = Tensor.backward
    """The backward pass from a loss."""


Work = Callable[[Part, Wrapped], Record]
"""What is done with a wrapped model: a measurement, or training."""
