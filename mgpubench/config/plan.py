"""From a request and a machine to the list of runs, in the order in which they are made."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mgpubench.config.architectures import refuse_without_code
from mgpubench.config.configure import Draft, combinations, configure
from mgpubench.config.device_choice import (
    TENSOR_FLOAT_CAPABILITY,
    check_options,
    choose_device,
    why_no_gpu,
)
from mgpubench.config.machine_facts import Gpu, Machine, NodeDevices
from mgpubench.config.order import draw_blocks, draw_order
from mgpubench.config.request import Request
from mgpubench.config.request_checks import check_divisible
from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import (
    BF16_PRECISIONS,
    FP16_PRECISIONS,
    MAX_NUMBER,
    NUM_SYNTHETIC_CLASSES,
)
from mgpubench.errors import RequestRefused
from mgpubench.format import format_count

MAX_RUNS = 100_000

ORDER_SEEDS = MAX_NUMBER + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The runs of a session in their order, and what the user should know about them."""

    runs: tuple[RunConfig, ...]
    notices: tuple[str, ...]
    order_seed: int
    """From which the order was drawn. An equal seed continues it."""

    @property
    def num_configurations(self) -> int:
        """The runs of one round."""
        return sum(run.round == 1 for run in self.runs)

    @property
    def rounds(self) -> int:
        """How many rounds are planned."""
        return max(run.round for run in self.runs)

    def with_rounds(self, rounds: int) -> Plan:
        """The same plan with more rounds."""
        size = self.num_configurations
        first = dict(zip(self._order(1), self.runs[:size], strict=True))
        runs = _runs_in_order([first[index] for index in range(size)], self._order(rounds))
        return replace(self, runs=(*self.runs, *runs[len(self.runs) :]))

    def rounds_after(self, number: int) -> Iterator[tuple[RunConfig, ...]]:
        """The rounds after one, without end, each made when it is asked for."""
        size = self.num_configurations
        first = dict(zip(self._order(1), self.runs[:size], strict=True))
        configurations = [first[index] for index in range(size)]
        seen = 0
        for block in draw_blocks(size, random.Random(self.order_seed)):
            for start in range(0, len(block), size):
                seen += 1
                if seen > number:
                    order = block[start : start + size]
                    yield _round_in_order(configurations, order, seen)

    def with_first_round_only(self) -> Plan:
        """The same configurations, each once."""
        return replace(self, runs=self.runs[: self.num_configurations])

    def _order(self, rounds: int) -> list[int]:
        return draw_order(self.num_configurations, rounds, random.Random(self.order_seed))


def make_plan(
    request: Request,
    machine: Machine,
    num_classes: Mapping[str, int] | None = None,
    others: tuple[NodeDevices, ...] = (),
) -> Plan:
    """Turn a request into runs, for a machine and perhaps `others`, whose devices ddp takes too.

    `num_classes` gives the number of classes of each image folder.

    Raises:
        RequestRefused: if this machine cannot do what was requested.
    """
    notices: list[str] = []
    configurations: list[RunConfig] = []
    for part in request.parts:
        classes = (num_classes or {}).get(part.data, NUM_SYNTHETIC_CLASSES)
        draft = Draft(part, machine, choose_device(part, machine), classes, others)
        configurations += _configurations(draft, notices)
    for node, its_machine in enumerate(draft.machines):
        refuse_without_code(its_machine, _used_indices(configurations, node))
    given = {part.variant_number for part in request.parts if part.warmup_steps is not None}
    configurations = _lengthen_warmup(configurations, given, notices)
    notices += _mixed_gpus(configurations, draft.machines)
    notices += _emulated(configurations, draft.machines)
    notices += _slow_on_cpu(configurations)
    # Not about the default, which is ours.
    if any(part.workers_per_gpu is not None for part in request.parts):
        notices += _many_workers(configurations, machine)
    rounds = _planned_rounds(request, draft.preset.rounds)
    _check_runs(rounds, request.round_limit, len(configurations))
    seed = random.randrange(ORDER_SEEDS) if request.seed is None else request.seed
    order = draw_order(len(configurations), rounds, random.Random(seed))
    return Plan(
        runs=tuple(_runs_in_order(configurations, order)),
        notices=tuple(dict.fromkeys(notices)),  # variants may cause the same one
        order_seed=seed,
    )


def _planned_rounds(request: Request, default: int) -> int:
    if request.duration_s is not None:
        return 1  # the others are drawn as they come
    rounds = request.rounds or default
    return min(rounds, request.round_limit) if request.until else rounds


def _check_runs(rounds: int, round_limit: int, num_configurations: int) -> None:
    for option, number in (("--rounds", rounds), ("--max-rounds", round_limit)):
        if number * num_configurations > MAX_RUNS:
            raise RequestRefused(f"{option} {number} makes more than {MAX_RUNS} runs")


def _configurations(draft: Draft, notices: list[str]) -> list[RunConfig]:
    request, machine = draft.request, draft.machine
    check_options(request, machine, draft.device_type)
    if draft.fell_back_to_cpu:
        notices.append(
            f"no usable GPU ({why_no_gpu(machine)}): running on the CPU, with "
            "the --smoke values for every option not given"
        )
    spreads = list(combinations(draft, notices))
    for count in [sum(spread) for mode, spread in spreads if mode != "single"] or draft.counts:
        check_divisible(request.global_batch, count, request.accumulate)
    return [configure(draft, mode, spread) for mode, spread in spreads]


def _runs_in_order(configurations: Sequence[RunConfig], order: Sequence[int]) -> list[RunConfig]:
    return [
        replace(configurations[index], round=1 + i // len(configurations), position=1 + i)
        for i, index in enumerate(order)
    ]


def _round_in_order(
    configurations: Sequence[RunConfig], order: Sequence[int], number: int
) -> tuple[RunConfig, ...]:
    """One round of an order."""
    before = (number - 1) * len(configurations)
    return tuple(
        replace(configurations[index], round=number, position=before + place)
        for place, index in enumerate(order, start=1)
    )


def _lengthen_warmup(
    configurations: list[RunConfig], given: Collection[int | None], notices: list[str]
) -> list[RunConfig]:
    """Give all runs a warm-up that is long enough to use up every loader's queue.

    Otherwise the window would begin with batches that were loaded before it. DataParallel has the
    longest queue, since its one loader has the workers of all devices. `given` names the variants
    whose warm-up the user has set (None: of runs without a variant).
    """
    free = [config for config in configurations if config.variant_number not in given]
    longest = max((config.longest_queue for config in free), default=0)
    if not free or longest <= free[0].warmup_steps:
        return configurations
    notices.append(
        f"{longest} warm-up steps instead of {free[0].warmup_steps}, to use up the "
        "batches that the loaders prepare before the window"
    )
    return [
        config if config.variant_number in given else replace(config, warmup_steps=longest)
        for config in configurations
    ]


def _many_workers(configurations: Sequence[RunConfig], machine: Machine) -> Iterator[str]:
    """One warning for the plan, instead of torch's warning from every rank."""
    largest = max(configurations, key=lambda config: config.total_workers)
    if largest.queue_length and largest.total_workers > machine.usable_cores:
        # Single may have the workers of several devices: see `_loader_shares`.
        shares = largest.total_workers // largest.workers_per_device
        yield (
            f"{format_count(largest.workers_per_device, 'loader worker')} x {shares} devices = "
            f"{largest.total_workers} share {machine.usable_cores} cores; a smaller "
            "--workers-per-gpu may load faster"
        )


def _mixed_gpus(configurations: Sequence[RunConfig], machines: Sequence[Machine]) -> Iterator[str]:
    names = sorted({gpu.name for gpu in _used_gpus(configurations, machines)})
    if len(names) > 1:
        yield (
            f"the GPUs are of different models ({', '.join(names)}): every step takes as long as "
            "on the slowest of them"
        )


def _used_indices(configurations: Sequence[RunConfig], node: int) -> set[int]:
    return {
        index
        for config in configurations
        if node < config.num_nodes
        for index in config.indices_by_node[node]
    }


def _used_gpus(configurations: Sequence[RunConfig], machines: Sequence[Machine]) -> Iterator[Gpu]:
    for config in configurations:
        for indices, machine in zip(config.indices_by_node, machines, strict=False):
            yield from (machine.gpus[index] for index in indices)


def _emulated(configurations: Sequence[RunConfig], machines: Sequence[Machine]) -> Iterator[str]:
    slow = sorted(
        {
            config.precision
            for config in configurations
            if config.precision in BF16_PRECISIONS
            for gpu in _used_gpus([config], machines)
            if gpu.capability < TENSOR_FLOAT_CAPABILITY
        }
    )
    if slow:
        yield (
            f"bf16 is emulated on GPUs below compute capability 8.0: {' and '.join(slow)} will be "
            "slow, and says nothing about newer GPUs"
        )


def _slow_on_cpu(configurations: Sequence[RunConfig]) -> Iterator[str]:
    slow = sorted(
        {
            config.precision
            for config in configurations
            if config.device_type == "cpu" and config.precision in FP16_PRECISIONS
        }
    )
    if slow:
        yield (
            f"{' and '.join(slow)} on a CPU: fp16 is far slower there than fp32 (up to 15 times), "
            "and says nothing about GPUs"
        )
