"""torch.compile apart from the measurement: when it happens, how long it takes, what it makes."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from mgpubench.config import DeviceType, RunConfig
from mgpubench.data import Batch
from mgpubench.errors import RequestRefused, RunFailed
from mgpubench.records import Compiling
from mgpubench.share import Share


class CompileWatch:
    """Compiles a model by a first pass before the warm-up, and counts what is compiled later."""

    def __init__(
        self, config: RunConfig, share: Share, forward_backward: Callable[[Batch], object]
    ) -> None:
        batch = _blank_batch(config, share)
        began_s = time.perf_counter()
        with _one_line_errors():
            forward_backward(batch)
        share.synchronize()
        self._seconds = time.perf_counter() - began_s
        self._graphs = _count("stats", "unique_graphs")

    def finish(self) -> Compiling:
        """What came of it, once the run is over."""
        return Compiling(
            seconds=self._seconds,
            graphs=self._graphs,
            recompiles=_count("stats", "unique_graphs") - self._graphs,
            graph_breaks=_count("graph_break"),
        )


def check_compiler(device_type: DeviceType) -> None:
    """Compile two additions before the first run: the quickest way to know whether it can be done.

    Raises:
        RequestRefused: in torch's own words, which name a missing compiler.
    """
    numbers = torch.ones(8, device=device_type)
    try:
        with _one_line_errors():
            torch.compile(_add_twice)(numbers)
    except RunFailed as error:
        raise RequestRefused(error.message, error.hint, error.details) from error


def _add_twice(numbers: torch.Tensor) -> torch.Tensor:
    return numbers + 1 + numbers


def _blank_batch(config: RunConfig, share: Share) -> Batch:
    """A batch of the run's own shape; the loader and its queue are left alone."""
    shape = (share.batch, 3, config.image_size, config.image_size)
    images = torch.zeros(shape, dtype=torch.uint8, device=share.device)
    return images, torch.zeros(shape[:1], dtype=torch.int64, device=share.device)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Compilers speak in pages; the gist is one line.

    Raises:
        RunFailed: for any error of torch.compile itself; others pass.
    """
    from torch._dynamo.exc import TorchDynamoException

    try:
        yield
    except TorchDynamoException as error:
        cause = error.__cause__ or error
        gist = str(cause).strip().partition("\n")[0].rstrip(".")
        raise RunFailed(
            f"--compile: torch.compile failed: {type(cause).__name__}: {gist}",
            "It needs a C++ compiler (g++, or the one that CXX names), and Triton on GPUs; or "
            "leave --compile out.",
            "".join(traceback.format_exception(error)),
        ) from error


def _count(kind: str, name: str | None = None) -> int:
    """One of torch's own counters of what it compiled in this process; or the sum of a kind."""
    # There is no public way to ask; the names have been the same since torch 2.0.
    from torch._dynamo.utils import counters

    return counters[kind][name] if name else sum(counters[kind].values())
