"""What a person asks for. It knows nothing about the machine, and is checked without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mgpubench.config.run_config import DdpOptions
from mgpubench.config.types import (
    DECIDED,
    DEFAULT_MAX_ROUNDS,
    DEFAULT_OUT,
    DEFAULT_TIMEOUT_S,
    MAX_GPUS,
    MAX_NUMBER,
    MAX_TIMEOUT_S,
    SYNTHETIC,
    DeviceChoice,
    Mode,
    Precision,
    Scaling,
    is_folder,
    is_own_model,
)
from mgpubench.errors import RequestRefused


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a person asked for. None means that the option was not given."""

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
    skip_bad_images: bool = False
    """Replace an image that cannot be read by the next one, and count it."""
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
    """Folder in which the session folder is made."""
    smoke: bool = False
    oversubscribe: bool = False
    """Put several replicas on one GPU, to test the code paths. It measures nothing."""
    channels_last: bool = False
    """Keep images and weights in the order N, H, W, C, which suits tensor cores."""
    compiled: bool = False
    """Compile the model with torch.compile before the warm-up."""
    cudnn_benchmark: bool = False
    """Let cuDNN choose its algorithms by trial during the warm-up, in every process."""
    backend: str | None = None
    """Backend of DDP's process group; None means nccl on GPUs and gloo elsewhere."""
    ddp: DdpOptions = field(default_factory=DdpOptions)
    until: str = ""
    """Add rounds `until` everything is `decided`, or known to a width such as `2%`."""
    max_rounds: int | None = None
    """At most so many rounds with `until`."""
    cool_down_s: float = 0.0
    """Pause between two runs."""
    variant: str = ""
    """Name of the variant that this request is, among those of another request."""
    variant_number: int | None = None
    """Its place on the command line, from 1."""
    env: tuple[tuple[str, str], ...] = ()
    """Environment variables of a variant."""
    variants: tuple[Request, ...] = ()
    """Requests that differ in a few options, to be compared with each other."""

    def __post_init__(self) -> None:
        """Refuse what is impossible on any machine, and name the options and numbers."""
        self._check_batch()
        self._check_numbers()
        self._check_texts()
        self._check_model()
        self._check_gpus()
        self._check_device()
        self._check_ddp_options()
        self._check_until()
        self._check_variants()

    def _check_batch(self) -> None:
        if self.batch_per_gpu is not None and self.global_batch is not None:
            raise RequestRefused(
                f"--batch-per-gpu {self.batch_per_gpu} and --global-batch {self.global_batch} "
                "exclude each other",
                "Give --batch-per-gpu for weak scaling or --global-batch for strong scaling.",
            )

    def _check_numbers(self) -> None:
        for option, value, least in (
            ("--batch-per-gpu", self.batch_per_gpu, 1),
            ("--global-batch", self.global_batch, 1),
            ("--image-size", self.image_size, 1),
            ("--workers-per-gpu", self.workers_per_gpu, 0),
            ("--warmup-steps", self.warmup_steps, 0),
            ("--steps", self.steps, 1),
            ("--rounds", self.rounds, 1),
            ("--seed", self.seed, 0),
            ("--max-rounds", self.max_rounds, 1),
        ):
            if value is not None and not least <= value <= MAX_NUMBER:
                bound = f"at least {least}" if value < least else f"at most {MAX_NUMBER}"
                raise RequestRefused(f"{option} is {value}, and must be {bound}")
        if not 0 < self.timeout_s <= MAX_TIMEOUT_S:
            raise RequestRefused(
                f"--timeout is {self.timeout_s:g}, and must be above 0 and at most "
                f"{MAX_TIMEOUT_S:.0f} seconds"
            )
        if not 0 <= self.cool_down_s <= MAX_TIMEOUT_S:
            raise RequestRefused(
                f"--cool-down is {self.cool_down_s:g}, and must be from 0 to {MAX_TIMEOUT_S:.0f} "
                "seconds"
            )
        bucket_cap_mb = self.ddp.bucket_cap_mb
        if bucket_cap_mb is not None and not 0 < bucket_cap_mb <= MAX_NUMBER:
            raise RequestRefused(
                f"--bucket-cap-mb is {bucket_cap_mb:g}, and must be a number above 0"
            )

    def _check_texts(self) -> None:
        for option, text in (("--data", self.data), ("--model", self.model), ("--out", self.out)):
            if text == "":
                raise RequestRefused(f"{option} is empty", "Is a shell variable unset?")

    def _check_model(self) -> None:
        if self.model is not None and is_own_model(self.model):
            module, _, function = self.model.partition(":")
            if not all(name.isidentifier() for name in [*module.split("."), function]):
                raise RequestRefused(
                    f"--model {self.model} is not package.module:function",
                    "For the function make_net in nets/small.py it is nets.small:make_net",
                )
        if self.compiled and self.modes is not None and "dp" in self.modes:
            raise RequestRefused(
                "--compile and --mode dp exclude each other: in DataParallel's replicas compiled "
                "models have run uncompiled, or failed",
                "Use --compile --mode single,ddp.",
            )
        if self.skip_bad_images and not self.uses_folder:
            raise RequestRefused(
                f"--skip-bad-images needs a folder of images, and --data is {self.data}"
            )

    def _check_ddp_options(self) -> None:
        """Refuse options that no run of the plan would use."""
        names = list(self.ddp.changed)
        if self.backend is not None:
            names.append("backend")
        if names and self.modes is not None and "ddp" not in self.modes:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in names)
            raise RequestRefused(
                f"{options}: only for ddp, which --mode {','.join(self.modes)} does not run"
            )
        if self.wants_cpu and self.backend == "nccl":
            raise RequestRefused(
                "--backend nccl needs NVIDIA GPUs", "Use --backend gloo, or leave it out."
            )

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
                "--oversubscribe puts several replicas on one GPU, and has no meaning on a CPU",
                "Leave it out: on a CPU the replicas share the cores anyway.",
            )

    def _check_until(self) -> None:
        if not self.until:
            if self.max_rounds is not None:
                raise RequestRefused("--max-rounds has no meaning without --until")
            return
        width_of(self.until)
        if (self.rounds or 1) > self.round_limit:
            raise RequestRefused(
                f"--rounds {self.rounds} is more than --max-rounds {self.round_limit}",
                "The rounds of --until begin with --rounds and end with --max-rounds.",
            )

    def _check_variants(self) -> None:
        names = [each.variant for each in self.variants]
        if len(names) == 1:
            raise RequestRefused(
                f"there is only one --variant, {names[0]}, and nothing to compare it with",
                'Add another one, such as --variant "default:".',
            )
        for name in names:
            if names.count(name) > 1:
                raise RequestRefused(
                    f"two variants have the name {name}",
                    "Give each its own name; --aa compares equal runs.",
                )

    @property
    def parts(self) -> tuple[Request, ...]:
        """The variants, or the request itself if it has none."""
        return self.variants or (self,)

    @property
    def round_limit(self) -> int:
        """Rounds that this request may come to."""
        if not self.until:
            return self.rounds or 0
        return DEFAULT_MAX_ROUNDS if self.max_rounds is None else self.max_rounds

    @property
    def wants_cpu(self) -> bool:
        """True if the request itself asks for the CPU, so that GPUs do not matter."""
        return self.device == "cpu" or (self.smoke and self.device is None)

    @property
    def scaling(self) -> Scaling:
        """`strong` if the global batch is fixed, `weak` if the batch per device is."""
        return "weak" if self.global_batch is None else "strong"

    @property
    def uses_folder(self) -> bool:
        """True if the data is a folder of images."""
        return is_folder(self.data)


def width_of(until: str) -> float | None:
    """The relative width at which rounds are no longer added: `2%` is 0.02, `decided` is None.

    Raises:
        RequestRefused: if it is neither.
    """
    if until == DECIDED:
        return None
    try:
        percent = float(until.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not until.endswith("%") or not 0 < percent < 100:
        raise RequestRefused(
            f"--until is {until}, and must be {DECIDED} or a percentage such as 2%"
        )
    return percent / 100


def check_divisible(global_batch: int | None, num_devices: int) -> None:
    """Refuse a global batch that the devices cannot share equally.

    torch.nn.DataParallel would cut 9 samples for 8 GPUs into 2, 2, 2, 2, 1, and leave three idle.

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
