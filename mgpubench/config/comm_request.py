"""What a person asks of `mgpubench comm`, checked without torch and without the machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from mgpubench.config.request import Request
from mgpubench.config.types import MAX_NUMBER
from mgpubench.errors import RequestRefused
from mgpubench.format import format_binary

Operation = Literal[
    "broadcast",
    "scatter",
    "gather",
    "reduce",
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "send-recv",
    "barrier",
]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)

SPLIT_OPERATIONS: tuple[Operation, ...] = (
    "scatter",
    "gather",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
)
"""Their size is that of the whole, of which each rank has an equal piece."""

ELEMENT_BYTES = 4
"""The buffers hold fp32 numbers, as gradients do."""

DEFAULT_SMALLEST = 4 * 2**10
DEFAULT_LARGEST = {"cpu": 16 * 2**20, "cuda": 256 * 2**20}
"""Sizes in bytes, by the type of the devices."""
DEFAULT_FACTOR = 4
DEFAULT_CALLS = 20
DEFAULT_WARMUP_CALLS = 5

MAX_BYTES = 2**40
MAX_CALLS = 100_000

_SIZE = re.compile(r"(\d{1,15})\s*(?:([KMGT])i?B?|B)?", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True, kw_only=True, slots=True)
class CommOptions:
    """What is measured. None means that the option was not given."""

    operations: tuple[Operation, ...] | None = None
    """In the order of `OPERATIONS`; None: all that the backend has."""
    smallest: int | None = None
    """Bytes of the smallest buffer."""
    largest: int | None = None
    """Bytes that no buffer exceeds."""
    factor: int | None = None
    """From one size to the next."""
    calls: int = DEFAULT_CALLS
    """Calls in a timed block, unless the size is too large for so many."""
    warmup_calls: int = DEFAULT_WARMUP_CALLS
    """Calls of each size that are not timed."""

    @property
    def smallest_bytes(self) -> int:
        """The first size."""
        return DEFAULT_SMALLEST if self.smallest is None else self.smallest

    def __post_init__(self) -> None:
        """Refuse values that are impossible."""
        for option, size in (("--smallest", self.smallest), ("--largest", self.largest)):
            if size is not None and not ELEMENT_BYTES <= size <= MAX_BYTES:
                raise RequestRefused(
                    f"{option} is {format_binary(size)}, and must be from {ELEMENT_BYTES} B to "
                    f"{format_binary(MAX_BYTES)}"
                )
        for option, number, least, most in (
            ("--factor", self.factor, 2, MAX_NUMBER),
            ("--calls", self.calls, 1, MAX_CALLS),
            ("--warmup-calls", self.warmup_calls, 0, MAX_CALLS),
        ):
            if number is not None and not least <= number <= most:
                raise RequestRefused(f"{option} is {number}, and must be from {least} to {most}")
        self._check_order()

    def _check_order(self) -> None:
        if self.largest is not None and self.largest < self.smallest_bytes:
            raise RequestRefused(
                f"--largest {format_binary(self.largest)} is below --smallest "
                f"{format_binary(self.smallest_bytes)}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class CommRequest:
    """What a person asked for: devices, rounds and limits, as `run` has them, and the operations.

    The devices are those of ddp. With a model in `work` the sizes are those of its gradient
    buckets.
    """

    work: Request
    options: CommOptions
    num_nodes: int = 1
    """Machines that take part. `work.gpus` is of this one."""

    def __post_init__(self) -> None:
        """Refuse what no machine can do."""
        if self.num_nodes == 1 and self.work.gpus is not None and min(self.work.gpus) < 2:
            raise RequestRefused(
                "--gpus 1: on one device there is nobody to exchange data with",
                "Use at least --gpus 2.",
            )
        self._check_sizes()

    def _check_sizes(self) -> None:
        given = (
            ("--smallest", self.options.smallest),
            ("--largest", self.options.largest),
            ("--factor", self.options.factor),
        )
        named = [option for option, value in given if value is not None]
        if self.work.model is not None and named:
            raise RequestRefused(
                f"--model and {named[0]} exclude each other",
                "--model takes the sizes of the model's own gradient buckets.",
            )
        if self.work.model is None and self.work.ddp.bucket_cap_mb is not None:
            raise RequestRefused(
                "--bucket-cap-mb has no meaning without --model",
                "Name the model whose gradient buckets are to be exchanged.",
            )


def parse_size(text: str) -> int:
    """A number of bytes from `4096`, `4K`, `4KiB` or `4 MiB`. Units are powers of 1024.

    Raises:
        ValueError: if it is none.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size such as 4096, 4KiB or 16M")
    return int(match[1]) << _POWERS[(match[2] or "").lower()]
