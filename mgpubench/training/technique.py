"""A model as a technique has wrapped it, and what the rest of training may ask of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from torch import nn

from mgpubench.training.devices import Part
from mgpubench.training.trainable import TrainableModel

Record = TypeVar("Record")


def no_barrier() -> None:
    """The barrier of a run with one process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wrapped:
    """A model inside its technique."""

    model: nn.Module
    """What is called in a step."""
    plain: TrainableModel
    """The model without its wrapper, whose parameters are trained."""
    barrier: Callable[[], None] = no_barrier
    """Waits for the hosts of all ranks, and not for their devices."""
    without_sync: Callable[[], AbstractContextManager[object]] = nullcontext
    """A context in which gradients stay in this process, for all but the last of several backward
    passes of a step."""


Work = Callable[[Part, Wrapped], Record]
"""What is done with a wrapped model: a measurement, or training."""
