"""From a request for collectives and a machine to the list of runs, in their order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product

from mgpubench.config.architectures import refuse_without_code
from mgpubench.config.comm_request import (
    DEFAULT_FACTOR,
    DEFAULT_LARGEST,
    ELEMENT_BYTES,
    OPERATIONS,
    SPLIT_OPERATIONS,
    CommOptions,
    CommRequest,
    Operation,
)
from mgpubench.config.configure import Draft, configure
from mgpubench.config.device_choice import choose_device, why_no_gpu
from mgpubench.config.machine_facts import Machine, NodeDevices
from mgpubench.config.order import draw_order
from mgpubench.config.plan import MAX_RUNS, ORDER_SEEDS
from mgpubench.config.preset import STANDARD
from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import NUM_SYNTHETIC_CLASSES
from mgpubench.errors import RequestRefused
from mgpubench.format import format_binary

TIMED_BLOCKS = 5
"""Blocks of calls that a run times for each size, one after the other."""

BLOCK_BYTES = 64 * 2**20
"""A block has no more calls than its buffers, one for each call, have room for in this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommConfig:
    """One run: one operation with all its sizes, in fresh processes. Every field is final."""

    run: RunConfig
    """Devices, backend, threads, round and position. Its model and batch mean nothing here."""
    operation: Operation
    sizes: tuple[int, ...]
    """Bytes, in the order in which they are measured; 0 for the barrier, which has none."""
    calls: int
    """Calls in a timed block, at most."""
    warmup_calls: int
    model: str = ""
    """The model whose gradient buckets have these sizes; empty if they were not asked for."""
    buckets: tuple[tuple[int, int], ...] = ()
    """How many of its buckets have a size: pairs of bytes and number."""

    @property
    def label(self) -> str:
        """The run in a few words, as progress and errors name it: `all-reduce x2`."""
        return f"{self.operation} {self.run.place}"

    @property
    def memory_option(self) -> str:
        """The option that decides how much memory a device needs, with its value."""
        largest = format_binary(max(self.sizes))
        return f"--model {self.model}" if self.model else f"--largest {largest}"

    def block_calls(self, size_bytes: int) -> int:
        """Calls in a timed block of a size."""
        room = BLOCK_BYTES // size_bytes if size_bytes else self.calls
        return max(1, min(self.calls, room))


@dataclass(frozen=True, kw_only=True, slots=True)
class CommPlan:
    """The runs of a session in their order, and what the user should know about them."""

    runs: tuple[CommConfig, ...]
    notices: tuple[str, ...]
    order_seed: int
    """From which the orders of runs and sizes were drawn."""


def plan_devices(
    request: CommRequest, machine: Machine, others: tuple[NodeDevices, ...] = ()
) -> tuple[RunConfig, ...]:
    """Devices and processes for each number of devices of a request, as ddp has them.

    They are those of this machine, and of the `others` of a session on several.

    Raises:
        RequestRefused: if the machines cannot do what was requested.
    """
    # One round and one mode: what is drawn later needs no more.
    work = replace(request.work, modes=("ddp",))
    device_type = choose_device(work, machine, "Add --device cpu to run it on the CPU.")
    draft = Draft(work, machine, device_type, NUM_SYNTHETIC_CLASSES, others)
    if min(map(sum, draft.spreads)) < 2:
        raise RequestRefused(
            "there is only one GPU, and nobody to exchange data with",
            "Use --device cpu --gpus 2 to try the command on the CPU.",
        )
    configs = tuple(configure(draft, "ddp", spread) for spread in draft.spreads)
    for node, its_machine in enumerate(draft.machines):
        used = {index for config in configs for index in config.indices_by_node[node]}
        refuse_without_code(its_machine, used)
    return configs


def make_comm_plan(
    request: CommRequest,
    machine: Machine,
    buckets: Sequence[int] = (),
    lacking: Collection[Operation] = (),
    others: tuple[NodeDevices, ...] = (),
) -> CommPlan:
    """Turn a request into runs.

    Args:
        request: what was asked for.
        machine: where it runs.
        others: the other machines, and what they take of their devices.
        buckets: bytes of each gradient bucket of the model, if there is one.
        lacking: operations that the backend does not have.

    Raises:
        RequestRefused: if the machines cannot do what was requested.
    """
    devices = plan_devices(request, machine, others)
    operations = [each for each in wanted_operations(request.options) if each not in lacking]
    configurations = [
        _configuration(request, run, operation, buckets)
        for run, operation in product(devices, operations)
    ]
    rounds = request.work.rounds or STANDARD.rounds
    if rounds * len(configurations) > MAX_RUNS:
        raise RequestRefused(f"--rounds {rounds} makes more than {MAX_RUNS} runs")
    given = request.work.seed
    seed = random.randrange(ORDER_SEEDS) if given is None else given
    order = draw_order(len(configurations), rounds, random.Random(seed))
    return CommPlan(
        runs=tuple(
            _in_place(configurations[index], place, len(configurations), seed)
            for place, index in enumerate(order)
        ),
        notices=tuple(_notices(request, machine, devices[0])),
        order_seed=seed,
    )


def wanted_operations(options: CommOptions) -> tuple[Operation, ...]:
    """The operations that were asked for."""
    return OPERATIONS if options.operations is None else options.operations


def sizes_up_to(smallest: int, largest: int, factor: int) -> list[int]:
    """Bytes from the smallest on, each a factor larger than the one before."""
    sizes = []
    while smallest <= largest:
        sizes.append(smallest)
        smallest *= factor
    return sizes


def whole_elements(size_bytes: int, operation: Operation, world_size: int) -> int:
    """The size below in which every rank has as many whole elements, and one at least."""
    pieces = world_size if operation in SPLIT_OPERATIONS else 1
    unit = ELEMENT_BYTES * pieces
    return max(1, size_bytes // unit) * unit


def _configuration(
    request: CommRequest, run: RunConfig, operation: Operation, buckets: Sequence[int]
) -> CommConfig:
    """A run in round 1, with its sizes in ascending order."""
    sizes = [
        whole_elements(size, operation, run.world_size)
        for size in buckets or _asked_sizes(request.options, run)
    ]
    counts = Counter(sizes) if buckets else Counter()
    has_size = operation != "barrier"
    return CommConfig(
        run=run,
        operation=operation,
        sizes=tuple(sorted(set(sizes))) if has_size else (0,),
        calls=request.options.calls,
        warmup_calls=request.options.warmup_calls,
        model=request.work.model or "",
        buckets=tuple(sorted(counts.items())) if has_size else (),
    )


def _asked_sizes(options: CommOptions, run: RunConfig) -> list[int]:
    largest = options.largest
    if largest is None:
        largest = max(options.smallest_bytes, DEFAULT_LARGEST[run.device_type])
    return sizes_up_to(options.smallest_bytes, largest, options.factor or DEFAULT_FACTOR)


def _in_place(config: CommConfig, place: int, per_round: int, seed: int) -> CommConfig:
    """A configuration as a run of the session, with its sizes in an order of its own."""
    run = replace(config.run, round=1 + place // per_round, position=1 + place)
    rng = random.Random(f"{seed}/{run.position}")
    return replace(config, run=run, sizes=tuple(rng.sample(config.sizes, len(config.sizes))))


def _notices(request: CommRequest, machine: Machine, run: RunConfig) -> list[str]:
    if run.device_type == "cuda" or request.work.wants_cpu:
        return []
    return [f"no usable GPU ({why_no_gpu(machine)}): running on the CPU"]
