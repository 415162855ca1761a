"""torch.compile, kept apart from the measurement: how long it takes, and what it compiles."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from mgpubench.config.types import DeviceType
from mgpubench.errors import RequestRefused, RunFailed
from mgpubench.format import gist
from mgpubench.results.rank_record import Compiling
from mgpubench.training.data.batch import Batch
from mgpubench.training.devices import Part

_HINTS = (
    (
        "failed to map segment|noexec",
        "TMPDIR, or the folder of TORCHINDUCTOR_CACHE_DIR if that is set, is mounted with noexec: "
        "set it to a folder from which programs may be run.",
    ),
    (
        "No space left|quota exceeded",
        "Make room in TMPDIR, or in the folder of TORCHINDUCTOR_CACHE_DIR if that is set.",
    ),
    (
        "Permission denied|Read-only file system",
        "Set TMPDIR, or TORCHINDUCTOR_CACHE_DIR if that is set, to a folder that can be written.",
    ),
    (
        r"[Cc]ompiler|Python\.h|[Tt]riton",
        "It needs a C++ compiler (g++, or the one in CXX), and on GPUs Triton with gcc and "
        "Python's headers (python3-dev). Or leave --compile out.",
    ),
)
"""Patterns of what torch.compile says, with hints. The first one that matches is used."""


def hint_for(message: str) -> str:
    """What to do about an error of torch.compile."""
    return next(
        (hint for pattern, hint in _HINTS if re.search(pattern, message)),
        "--verbose shows where. Or leave --compile out.",
    )


@dataclass(frozen=True, slots=True)
class CompileWatch:
    """What the first pass compiled, so that later compilations can be counted."""

    first_pass_s: float
    graphs: int

    def finish(self) -> Compiling:
        """All that torch.compile did, asked after the run."""
        return Compiling(
            first_pass_s=self.first_pass_s,
            graphs=self.graphs,
            recompiles=_graphs() - self.graphs,
            graph_breaks=sum(_counters()["graph_break"].values()),
        )


def compile_apart(part: Part, forward_backward: Callable[[Batch], object]) -> CompileWatch:
    """Compile a model in a pass before the warm-up, and leave nothing that disturbs the run.

    Raises:
        RunFailed: if torch.compile fails.
    """
    batch = _blank_batch(part)
    began_s = time.perf_counter()
    with _one_line_errors():
        forward_backward(batch)
    part.synchronize()
    first_pass_s = time.perf_counter() - began_s
    _end_compile_workers()
    part.reset_peak_memory()  # trying kernels takes memory that training does not need
    return CompileWatch(first_pass_s, _graphs())


def _end_compile_workers() -> None:
    """End Inductor's pool, whose processes would still be loading torch during the run."""
    try:
        from torch._inductor.async_compile import shutdown_compile_workers
    except ImportError:  # this torch has no such pool
        return
    shutdown_compile_workers()


def check_compiler(device_type: DeviceType) -> None:
    """Compile two additions before the first run, the quickest way to know whether it works.

    Raises:
        RequestRefused: with torch's message, which names a missing compiler.
    """
    numbers = torch.ones(8, device=device_type)
    try:
        with _one_line_errors():
            torch.compile(_add_twice)(numbers)
    except RunFailed as error:
        raise RequestRefused(error.message, error.hint, error.details) from error


def _add_twice(numbers: torch.Tensor) -> torch.Tensor:
    return numbers + 1 + numbers


def _blank_batch(part: Part) -> Batch:
    """A batch of the run's shape. The loader and its queue are not touched."""
    size = part.config.image_size
    shape = (part.micro_batch, 3, size, size)
    images = torch.zeros(shape, dtype=torch.uint8, device=part.device)
    return images, torch.zeros(shape[:1], dtype=torch.int64, device=part.device)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Reduce the pages that compilers print to one line.

    Raises:
        RunFailed: for any error of torch.compile itself. Other errors pass.
    """
    from torch._dynamo.exc import TorchDynamoException

    try:
        yield
    except TorchDynamoException as error:
        cause = error.__cause__ or error
        raise RunFailed(
            f"--compile: torch.compile failed: {type(cause).__name__}: {gist(str(cause))}",
            hint_for(str(cause)),
            "".join(traceback.format_exception(error)),
        ) from error


def _graphs() -> int:
    """Graphs that torch.compile has compiled in this process."""
    graphs: int = _counters()["stats"]["unique_graphs"]
    return graphs


def _counters() -> Mapping[str, Mapping[str, int]]:
    # There is no public way to ask. The names have been the same since torch 2.0.
    from torch._dynamo.utils import counters

    return counters
