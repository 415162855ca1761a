"""Models that go wrong in the middle of a run: for `--model tests.hurtmodels:NAME`."""

from __future__ import annotations

import os
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

FAULT_TIME = Path(
    os.environ.setdefault(
        "MGPUBENCH_TESTS_FAULT_TIME" + os.environ.get("PYTEST_XDIST_WORKER", ""),
        str(Path(tempfile.gettempdir()) / f"mgpubench-tests-fault-time-{os.getpid()}"),
    )
)
"""Holds when a model last went wrong, on the monotonic clock that all processes share. The workers
get its name from the tests through the environment."""

FAULTY_STEP = 4
"""The preflight calls the model once or twice, and must find it in order."""

CLASSES = 10

SLOW_S = 0.2
"""Of each step of `slow_on_rank_1`."""


def rank() -> int:
    """The rank of this process; 0 if it is the only one."""
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


def is_last_rank() -> bool:
    """True in the only process, or in the one with the highest rank."""
    return (
        not torch.distributed.is_initialized() or rank() == torch.distributed.get_world_size() - 1
    )


def note_time() -> None:
    """Write the whole file or none: a peer may fail meanwhile, and this process is then killed."""
    unfinished = FAULT_TIME.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    unfinished.write_text(str(time.monotonic()))
    unfinished.replace(FAULT_TIME)


class Faulty(nn.Module):
    """A small classifier that does something in its fourth forward pass."""

    def __init__(self, fault: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, CLASSES))
        self.fault = fault
        self.calls = 0

    def forward(self, images: Tensor) -> Any:
        """Logits, and from the fourth call on what the fault makes of them."""
        logits = self.head(images)
        self.calls += 1
        if self.calls < FAULTY_STEP:
            return logits
        if self.calls == FAULTY_STEP:
            note_time()
        return self.fault(logits)


def raises_in_forward() -> nn.Module:
    def fault(logits: Tensor) -> Tensor:
        raise ValueError("wrong in forward")

    return Faulty(fault)


def raises_in_backward() -> nn.Module:
    def fault(logits: Tensor) -> Tensor:
        return Backward.apply(logits)  # type: ignore[no-any-return, no-untyped-call]

    return Faulty(fault)


class Backward(torch.autograd.Function):
    """Right in the forward pass, wrong in the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        return logits.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        raise ValueError("wrong in backward")


def raises_on_rank_1() -> nn.Module:
    def fault(logits: Tensor) -> Tensor:
        if rank() == 1:
            raise ValueError("wrong on rank 1")
        return logits

    return Faulty(fault)


def exits_silently() -> nn.Module:
    def fault(logits: Tensor) -> Tensor:
        if is_last_rank():
            os._exit(0)
        return logits

    return Faulty(fault)


def stops() -> nn.Module:
    def fault(logits: Tensor) -> Tensor:
        if is_last_rank():
            os.kill(os.getpid(), signal.SIGSTOP)
        return logits

    return Faulty(fault)


def allocates_too_much() -> nn.Module:
    """As under `ulimit -v`: more than is allowed, and not absurdly much."""

    def fault(logits: Tensor) -> Tensor:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, resource.RLIM_INFINITY))
        torch.ones(2**30)
        return logits

    return Faulty(fault)


def fills_the_gpu() -> nn.Module:
    """Takes the memory of a GPU piece by piece, until there is no more."""
    taken = []

    def fault(logits: Tensor) -> Tensor:
        while logits.is_cuda:
            taken.append(torch.empty(2**28, device=logits.device))
        return logits

    return Faulty(fault)


def returns_nonsense() -> nn.Module:
    return Faulty(lambda logits: None)


def loses_its_mind() -> nn.Module:
    return Faulty(lambda logits: logits * float("nan"))


class Slow(Faulty):
    """Slow on rank 1, in every step."""

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        if rank() == 1:
            time.sleep(SLOW_S)
        logits: Tensor = self.head(images)
        return logits


def slow_on_rank_1() -> nn.Module:
    """A machine whose GPUs are slower, or its disk."""
    return Slow(lambda logits: None)
