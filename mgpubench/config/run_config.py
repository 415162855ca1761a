"""The final configuration of one run. `plan.make_plan` makes it; nothing changes it afterwards."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from itertools import accumulate as running_sum

from mgpubench.config.types import (
    DEFAULT_OPTIMIZER,
    PREFETCH_FACTOR,
    CommHook,
    DeviceType,
    EffectiveMode,
    Mode,
    Optimizer,
    Precision,
    Scaling,
    is_folder,
    is_own_model,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DdpOptions:
    """Options that only ddp has."""

    bucket_cap_mb: float | None = None
    """Bucket size in MiB. None and 25 differ: by default the first bucket is smaller."""
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    find_unused_parameters: bool = False
    comm_hook: CommHook = "none"
    """How gradients are compressed before they are exchanged."""
    sync_batchnorm: bool = False
    """Let BatchNorm average over the devices of all ranks."""
    zero: bool = False
    """Keep the optimizer's state in parts, one on each rank."""

    @property
    def changed(self) -> dict[str, bool | float | str]:
        """The options that are not at their defaults."""
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        return {
            option.name: values[option.name]
            for option in fields(self)
            if values[option.name] != option.default
        }

    @property
    def arguments(self) -> dict[str, bool | float | str]:
        """What torch's DistributedDataParallel is given: nothing that is at torch's default."""
        return {name: value for name, value in self.changed.items() if name not in _NOT_ARGUMENTS}


_NOT_ARGUMENTS = ("comm_hook", "sync_batchnorm", "zero")
"""Options of ddp that torch does not take as arguments of DistributedDataParallel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """One run: one launch of fresh processes. Every field is final."""

    round: int
    position: int
    """Place in the session's order, from 1."""
    variant: str = ""
    variant_number: int | None = None
    """Place of the variant on the command line, from 1; None if there are no variants."""
    env: tuple[tuple[str, str], ...] = ()
    """Environment variables that the variant sets."""
    mode: Mode
    effective_mode: EffectiveMode
    device_type: DeviceType
    num_devices: int
    device_indices: tuple[int, ...]
    """CUDA index of each replica on its own machine; empty on a CPU. On one machine an index
    repeats only when oversubscribed."""
    devices_per_node: tuple[int, ...] = ()
    """Devices on each machine, in the order of the ranks; empty for a run on one machine."""
    world_size: int
    backend: str
    """Backend of the process group; empty if there is none."""
    model: str
    num_classes: int
    """Classes of the folder, or logits of the model. Synthetic labels are drawn below it."""
    data: str
    skip_bad_images: bool
    """Replace an image that cannot be read by the next one, and count it."""
    image_size: int
    precision: Precision
    channels_last: bool
    compiled: bool
    scaling: Scaling
    batch_per_device: int
    """Samples that one device takes in a step, in all micro-batches together."""
    accumulate: int = 1
    """Micro-batches of a step: one after the other, before one optimizer update."""
    optimizer: Optimizer = DEFAULT_OPTIMIZER
    log_every: int = 0
    """Steps between two lines of loss; 0: none."""
    workers_per_device: int
    """The same for the whole plan."""
    workers_per_rank: int
    """Loader workers that one process starts. The total is the same for all modes but single."""
    threads_per_rank: int
    cudnn_benchmark: bool = False
    ddp: DdpOptions = field(default_factory=DdpOptions)
    spin_up_s: float = 0.0
    """Seconds of training before the warm-up steps, so that GPUs raise their clocks."""
    warmup_steps: int
    steps: int
    seed: int
    timeout_s: float

    @property
    def global_batch(self) -> int:
        """Samples that all devices together take in one step."""
        return self.num_devices * self.batch_per_device

    @property
    def num_nodes(self) -> int:
        """Machines that take part."""
        return len(self.devices_per_node) or 1

    @property
    def indices_by_node(self) -> list[tuple[int, ...]]:
        """`device_indices`, machine by machine."""
        ends = list(running_sum(self.devices_per_node or (self.num_devices,)))
        return [
            self.device_indices[start:end] for start, end in zip((0, *ends), ends, strict=False)
        ]

    @property
    def ranks_per_node(self) -> tuple[int, ...]:
        """Processes on each machine. Ranks are numbered machine by machine."""
        return self.devices_per_node or (self.world_size,)

    def ranks_of_node(self, node: int) -> range:
        """The ranks on one machine: they follow those of the machines before it."""
        first = sum(self.ranks_per_node[:node])
        return range(first, first + self.ranks_per_node[node])

    def name_of_rank(self, rank: int) -> str:
        """A rank as messages name it: `rank 1`, or `rank 1 on node 0` of several machines."""
        nodes = (node for node in range(self.num_nodes) if rank in self.ranks_of_node(node))
        return f"rank {rank} on node {next(nodes)}" if self.num_nodes > 1 else f"rank {rank}"

    @property
    def micro_batch_per_device(self) -> int:
        """Samples that one device takes at once."""
        return self.batch_per_device // self.accumulate

    @property
    def total_workers(self) -> int:
        """Loader workers of all processes of the run."""
        return self.workers_per_rank * self.world_size

    @property
    def queue_length(self) -> int:
        """Steps whose batches a process's loader can hold ready; 0 for synthetic data."""
        micro_batches = self.workers_per_rank * PREFETCH_FACTOR if self.uses_folder else 0
        return math.ceil(micro_batches / self.accumulate)

    @property
    def longest_queue(self) -> int:
        """The queue if one process had the workers of all: dp has it, and ddp has as long a
        warm-up, so that sessions of one mode each are equal work."""
        micro_batches = self.total_workers * PREFETCH_FACTOR if self.uses_folder else 0
        return math.ceil(micro_batches / self.accumulate)

    @property
    def uses_folder(self) -> bool:
        """True if the data is a folder of images."""
        return is_folder(self.data)

    @property
    def uses_own_model(self) -> bool:
        """True for a user's own model."""
        return is_own_model(self.model)

    @property
    def lead_in_steps(self) -> int:
        """Warm-up steps that run directly before the window, without a pause between.

        The pause before them lets the loader fill its queue. The lead-in uses those batches up,
        which would otherwise look free, as far as the warm-up is long enough.
        """
        return min(self.warmup_steps, max(1, self.queue_length))

    @property
    def total_steps(self) -> int:
        """Warm-up steps and measured steps together."""
        return self.warmup_steps + self.steps

    @property
    def options(self) -> str:
        """The options that are not at their defaults, as in the column: `name=value;name=value`."""
        changed: dict[str, bool | float | str] = {**self.ddp.changed}
        if self.cudnn_benchmark:
            changed["cudnn_benchmark"] = True
        if self.backend not in ("", default_backend(self.effective_mode, self.device_type)):
            changed["backend"] = self.backend
        if self.log_every:
            changed["log_every"] = self.log_every
        changed |= {f"env:{name}": value for name, value in self.env}
        return ";".join(f"{name}={option_text(value)}" for name, value in sorted(changed.items()))

    @property
    def sizes(self) -> str:
        """The options that decide how much memory a device needs, with their values."""
        batch = f"--batch-per-gpu {self.micro_batch_per_device}"
        if self.scaling == "strong":
            batch = f"--global-batch {self.global_batch}"
        return f"{batch} or --image-size {self.image_size}"

    @property
    def label(self) -> str:
        """The run in a few words, as progress and errors name it: `ddp x2`."""
        label = f"{self.mode} {self.place}"
        return f"{label} ({self.variant})" if self.variant else label

    @property
    def place(self) -> str:
        """On how many devices it runs: `x2`, or `x4 on 2 machines`."""
        place = f"x{self.num_devices}"
        return f"{place} on {self.num_nodes} machines" if self.num_nodes > 1 else place


def default_backend(effective_mode: EffectiveMode, device_type: DeviceType) -> str:
    """The backend of a process group if none is given."""
    # NCCL refuses two ranks on one GPU.
    return "nccl" if device_type == "cuda" and effective_mode != "oversubscribed" else "gloo"


def option_text(value: bool | float | str) -> str:
    """The value of an option as it stands in the column `options`."""
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return "true" if value is True else str(value)
