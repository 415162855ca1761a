"""torch.compile apart from the measurement: when it happens, how long it takes, what it makes."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from mgpubench.config.run_config import DeviceType, RunConfig
from mgpubench.errors import RequestRefused, RunFailed
from mgpubench.results.schema import Compiling
from mgpubench.training.data.loader import Batch
from mgpubench.training.devices import Share


@dataclass(frozen=True, slots=True)
class CompileWatch:
    """What the first pass came to, so that what is compiled later can be told from it."""

    first_pass_s: float
    graphs: int

    def finish(self) -> Compiling:
        """All that torch.compile did, once the run is over."""
        return Compiling(
            first_pass_s=self.first_pass_s,
            graphs=self.graphs,
            recompiles=_graphs() - self.graphs,
            graph_breaks=sum(_counters()["graph_break"].values()),
        )


def compile_apart(
    config: RunConfig, share: Share, forward_backward: Callable[[Batch], object]
) -> CompileWatch:
    """Compile a model by a pass before the warm-up, and leave nothing behind that disturbs it.

    Raises:
        RunFailed: if torch.compile fails.
    """
    batch = _blank_batch(config, share)
    began_s = time.perf_counter()
    with _one_line_errors():
        forward_backward(batch)
    share.synchronize()
    first_pass_s = time.perf_counter() - began_s
    _end_compile_workers()
    share.reset_peak_memory()  # trying kernels out takes memory that training does not
    return CompileWatch(first_pass_s, _graphs())


def _end_compile_workers() -> None:
    """Inductor's pool of processes would still be loading torch while the run is measured."""
    try:
        from torch._inductor.async_compile import shutdown_compile_workers
    except ImportError:  # there is no such pool in this torch
        return
    shutdown_compile_workers()


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
            "It needs a C++ compiler (g++, or the one that CXX names), and on GPUs Triton with "
            "gcc and Python's headers (python3-dev); or leave --compile out.",
            "".join(traceback.format_exception(error)),
        ) from error


def _graphs() -> int:
    """Pieces of code that torch.compile has compiled in this process."""
    graphs: int = _counters()["stats"]["unique_graphs"]
    return graphs


def _counters() -> Mapping[str, Mapping[str, int]]:
    # There is no public way to ask; the names have been the same since torch 2.0.
    from torch._dynamo.utils import counters

    return counters
