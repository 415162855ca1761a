"""What goes in: the words of the field, the machine, and the runs made on it.

`plan.make_plan` joins a `request.Request` with a `Machine` into `RunConfig`s, in which every field
is final.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, get_args

Mode = Literal["single", "dp", "ddp"]
EffectiveMode = Literal["single", "dp", "ddp", "passthrough", "cpu-replicas", "oversubscribed"]
DeviceType = Literal["cuda", "cpu"]
DeviceChoice = Literal["auto", "cuda", "cpu"]
Precision = Literal["fp32", "tf32", "amp-bf16"]
Scaling = Literal["weak", "strong"]

MODES: tuple[Mode, ...] = get_args(Mode)
EFFECTIVE_MODES: dict[Mode, tuple[EffectiveMode, ...]] = {
    "single": ("single",),
    "dp": ("dp", "passthrough", "cpu-replicas", "oversubscribed"),
    "ddp": ("ddp", "oversubscribed"),
}
"""What may really have run where a mode was asked for."""
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
DEVICE_CHOICES: tuple[DeviceChoice, ...] = get_args(DeviceChoice)

SYNTHETIC = "synthetic"
SYNTHETIC_HOST = "synthetic-host"

NUM_SYNTHETIC_CLASSES = 1000
"""ImageNet's number of classes; a folder has its own."""

PREFETCH_FACTOR = 2
"""Batches that each loader worker keeps ready; torch's default."""

DEFAULT_TIMEOUT_S = 1800.0
DEFAULT_OUT = "results"
MAX_TIMEOUT_S = 30 * 24 * 3600.0
MAX_GPUS = 1024
MAX_NUMBER = 2**31 - 1
"""Of any option: beyond it torch and the C libraries below it overflow."""

DEFAULT_MARGIN = 0.02
"""Relative difference that counts: below it two modes are equivalent."""

DDP_FLAGS = ("gradient_as_bucket_view", "static_graph", "find_unused_parameters")
"""Switches of DistributedDataParallel, by their names in torch."""

BUILTIN_MODELS = ("tiny-cnn", "mlp")
"""Models of our own, which need no torchvision."""

BUILTIN_IMAGE_SIZE = 32
TORCHVISION_IMAGE_SIZE = 224
INCEPTION_IMAGE_SIZE = 299


def default_image_size(model: str) -> int:
    """The image size in pixels that a model was made for."""
    if model in BUILTIN_MODELS:
        return BUILTIN_IMAGE_SIZE
    return INCEPTION_IMAGE_SIZE if model == "inception_v3" else TORCHVISION_IMAGE_SIZE


def is_own_model(model: str) -> bool:
    """True for `package.module:function`, a model of the user's own."""
    return ":" in model


def is_folder(data: str) -> bool:
    """True where the data are real images."""
    return data not in (SYNTHETIC, SYNTHETIC_HOST)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One visible CUDA device."""

    name: str
    uuid: str
    memory_bytes: int
    capability: tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The machine that a request meets, as `machine.describe` found it. Unknown is empty."""

    gpus: tuple[Gpu, ...]
    cuda_reason: str
    """Why torch cannot use CUDA, in torch's own words; empty where it can."""
    cuda_visible_devices: str | None
    cpu_model: str
    usable_cores: int
    """Cores that this process may use: affinity and cgroup quota count."""
    omp_num_threads: int | None
    """The user's own OMP_NUM_THREADS, which wins over our threads."""
    torch_version: str = ""
    torchvision_version: str = ""
    cuda_version: str = ""
    nccl_version: str = ""
    driver_version: str = ""
    python_version: str = ""

    @property
    def num_gpus(self) -> int:
        """GPUs that can take part; one that is listed twice is one."""
        return len({gpu.uuid for gpu in self.gpus})

    @property
    def fingerprint(self) -> str:
        """8 hex digits that tell this machine from another: CPU model, cores and GPU UUIDs."""
        identity = "\n".join([self.cpu_model, str(self.usable_cores), *(g.uuid for g in self.gpus)])
        return hashlib.sha256(identity.encode()).hexdigest()[:8]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """One run: one launch of fresh processes. Every field is final."""

    round: int
    position: int
    """Place in the session's order, from 1."""
    mode: Mode
    effective_mode: EffectiveMode
    device_type: DeviceType
    num_devices: int
    device_indices: tuple[int, ...]
    """CUDA index of each replica; indices repeat only when oversubscribed; empty on CPU."""
    world_size: int
    backend: str
    """Backend of the process group; empty where there is none."""
    model: str
    num_classes: int
    """Of the folder, or of the logits; synthetic labels are drawn below it."""
    data: str
    skip_bad_images: bool
    """Put the next image in the place of one that cannot be read, and count it."""
    image_size: int
    precision: Precision
    channels_last: bool
    compiled: bool
    scaling: Scaling
    batch_per_device: int
    workers_per_device: int
    """One value for the whole plan."""
    workers_per_rank: int
    """Loader workers that one process starts: dp and ddp have equal totals."""
    threads_per_rank: int
    options: tuple[tuple[str, str], ...]
    """Options of the mode that are not at their default, sorted by name."""
    warmup_steps: int
    steps: int
    seed: int
    timeout_s: float

    @property
    def global_batch(self) -> int:
        """Samples that all devices together take in one step."""
        return self.num_devices * self.batch_per_device

    @property
    def total_workers(self) -> int:
        """Loader workers of all processes of the run."""
        return self.workers_per_rank * self.world_size

    @property
    def queue_length(self) -> int:
        """Batches that a process's loader can have ready; none where data are synthetic."""
        return self.workers_per_rank * PREFETCH_FACTOR if self.uses_folder else 0

    @property
    def uses_folder(self) -> bool:
        """True where the data are real images."""
        return is_folder(self.data)

    @property
    def uses_own_model(self) -> bool:
        """True for a model of the user's own."""
        return is_own_model(self.model)

    @property
    def lead_in_steps(self) -> int:
        """Warm-up steps directly before the window, without a pause between.

        As many as batches were ready before, which would be free, if the warm-up is that long.
        """
        return min(self.warmup_steps, max(1, self.queue_length))

    @property
    def total_steps(self) -> int:
        """Warm-up steps and measured steps together."""
        return self.warmup_steps + self.steps

    @property
    def ddp_arguments(self) -> dict[str, bool | float]:
        """What DistributedDataParallel is given beyond its defaults.

        Nothing at all where nothing was asked for: bucket_cap_mb=25 is not torch's default, which
        has a smaller first bucket.
        """
        given = dict(self.options)
        arguments: dict[str, bool | float] = {flag: True for flag in DDP_FLAGS if flag in given}
        if "bucket_cap_mb" in given:
            arguments["bucket_cap_mb"] = float(given["bucket_cap_mb"])
        return arguments

    @property
    def label(self) -> str:
        """The run in a few words, as progress and errors name it: `ddp x2`."""
        return f"{self.mode} x{self.num_devices}"
