"""What goes in: the request of a person, the machine it meets, and the runs that come of it.

`Request` knows nothing of the machine and is checked without torch. `plan.make_plan` joins it with
a `Machine` into `RunConfig`s, in which every field is final.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, get_args

from mgpubench.errors import RequestRefused

Mode = Literal["single", "dp", "ddp"]
EffectiveMode = Literal["single", "dp", "ddp", "passthrough", "cpu-replicas", "oversubscribed"]
DeviceType = Literal["cuda", "cpu"]
DeviceChoice = Literal["auto", "cuda", "cpu"]
Precision = Literal["fp32", "tf32", "amp-bf16"]
Scaling = Literal["weak", "strong"]

MODES: tuple[Mode, ...] = get_args(Mode)
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

BUILTIN_MODELS = ("tiny-cnn", "mlp")
"""Models of our own, which need no torchvision."""

BUILTIN_IMAGE_SIZE = 32
TORCHVISION_IMAGE_SIZE = 224
INCEPTION_IMAGE_SIZE = 299


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """The values of the options that were not given."""

    model: str
    batch_per_gpu: int
    image_size: int | None
    """None: the model's own."""
    warmup_steps: int
    steps: int
    rounds: int


STANDARD = Preset(
    model="resnet50", batch_per_gpu=64, image_size=None, warmup_steps=20, steps=100, rounds=5
)
SMOKE = Preset(model="tiny-cnn", batch_per_gpu=8, image_size=32, warmup_steps=2, steps=5, rounds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a person asked for; None means that the option was not given."""

    modes: tuple[Mode, ...] | None = None
    """Modes to run; None means all that make sense."""
    gpus: tuple[int, ...] | None = None
    """Numbers of devices for dp and ddp (counts, not indices)."""
    device: DeviceChoice | None = None
    """Where to run; None means auto, or CPU in a smoke run."""
    model: str | None = None
    batch_per_gpu: int | None = None
    """Weak scaling: samples that each device takes a step."""
    global_batch: int | None = None
    """Strong scaling: samples that all devices together take a step."""
    data: str = SYNTHETIC
    """`synthetic`, `synthetic-host`, or the path of an ImageFolder."""
    image_size: int | None = None
    precision: Precision | None = None
    workers_per_gpu: int | None = None
    """Loader workers for each device."""
    warmup_steps: int | None = None
    steps: int | None = None
    rounds: int | None = None
    seed: int | None = None
    """Seed of weights and data (0 if not given) and, only if given, of the order of the runs."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Seconds that one run may take, its start included."""
    out: str = DEFAULT_OUT
    """Folder in which the session's folder is made."""
    smoke: bool = False
    oversubscribe: bool = False
    """Several replicas on one GPU, to test the code paths; never a speed."""

    def __post_init__(self) -> None:
        """Refuse what is impossible on any machine, naming the options and the numbers."""
        if self.batch_per_gpu is not None and self.global_batch is not None:
            raise RequestRefused(
                f"--batch-per-gpu {self.batch_per_gpu} and --global-batch {self.global_batch} "
                "exclude each other",
                "Give --batch-per-gpu for weak scaling or --global-batch for strong scaling.",
            )
        for option, value, least in (
            ("--batch-per-gpu", self.batch_per_gpu, 1),
            ("--global-batch", self.global_batch, 1),
            ("--image-size", self.image_size, 1),
            ("--workers-per-gpu", self.workers_per_gpu, 0),
            ("--warmup-steps", self.warmup_steps, 0),
            ("--steps", self.steps, 1),
            ("--rounds", self.rounds, 1),
            ("--seed", self.seed, 0),
        ):
            if value is not None and not least <= value <= MAX_NUMBER:
                bound = f"at least {least}" if value < least else f"at most {MAX_NUMBER}"
                raise RequestRefused(f"{option} is {value}, and must be {bound}")
        if not 0 < self.timeout_s <= MAX_TIMEOUT_S:
            raise RequestRefused(
                f"--timeout is {self.timeout_s:g}, and must be above 0 and at most "
                f"{MAX_TIMEOUT_S:.0f} seconds"
            )
        for option, text in (("--data", self.data), ("--model", self.model), ("--out", self.out)):
            if text == "":
                raise RequestRefused(f"{option} is empty", "Is a variable of the shell unset?")
        self._check_gpus()
        self._check_device()

    def _check_gpus(self) -> None:
        if self.gpus is None:
            return
        if not self.gpus or min(self.gpus) < 1:
            raise RequestRefused(
                f"--gpus takes numbers of GPUs, at least 1, not {','.join(map(str, self.gpus))}",
                "It is a count and not an index; choose which GPUs with CUDA_VISIBLE_DEVICES.",
            )
        if max(self.gpus) > MAX_GPUS:
            raise RequestRefused(f"--gpus is {max(self.gpus)}, and must be at most {MAX_GPUS}")
        for count in self.gpus:
            check_divisible(self.global_batch, count)

    def _check_device(self) -> None:
        if self.wants_cpu and self.precision == "tf32":
            raise RequestRefused(
                "--precision tf32 needs an NVIDIA GPU; a CPU has no TF32",
                "Use --precision fp32, or leave the option out.",
            )
        if self.wants_cpu and self.oversubscribe:
            raise RequestRefused(
                "--oversubscribe puts several replicas on one GPU and means nothing on a CPU",
                "Leave it out: on a CPU the replicas share the cores anyway.",
            )

    @property
    def wants_cpu(self) -> bool:
        """True where the request itself says CPU, whatever the machine has."""
        return self.device == "cpu" or (self.smoke and self.device is None)

    @property
    def scaling(self) -> Scaling:
        """`strong` where the global batch is fixed, `weak` where the batch of a device is."""
        return "weak" if self.global_batch is None else "strong"

    @property
    def uses_folder(self) -> bool:
        """True where the data are real images."""
        return self.data not in (SYNTHETIC, SYNTHETIC_HOST)


def check_divisible(global_batch: int | None, num_devices: int) -> None:
    """Refuse a global batch that the devices cannot share equally.

    torch.nn.DataParallel would cut 9 samples on 8 GPUs into 2,2,2,2,1 and leave three GPUs idle.

    Raises:
        RequestRefused: if `num_devices` does not divide `global_batch`.
    """
    if global_batch is not None and global_batch % num_devices:
        below = global_batch // num_devices * num_devices
        nearest = f"{below} or {below + num_devices}" if below else f"{num_devices}"
        raise RequestRefused(
            f"--global-batch {global_batch} cannot be shared equally by {num_devices} devices",
            f"Every device must get the same number of samples; try {nearest}.",
        )


def default_image_size(model: str) -> int:
    """The image size in pixels that a model was made for."""
    if model in BUILTIN_MODELS:
        return BUILTIN_IMAGE_SIZE
    return INCEPTION_IMAGE_SIZE if model == "inception_v3" else TORCHVISION_IMAGE_SIZE


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
    data: str
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
    def queue_length(self) -> int:
        """Batches that a process's loader can have ready; none where data are synthetic."""
        is_folder = self.data not in (SYNTHETIC, SYNTHETIC_HOST)
        return self.workers_per_rank * PREFETCH_FACTOR if is_folder else 0

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
    def label(self) -> str:
        """The run in a few words, as progress and errors name it: `ddp x2`."""
        return f"{self.mode} x{self.num_devices}"
