"""What a person asks for. It knows nothing about the machine, and is checked without torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from mgpubench.config.request_checks import check_request
from mgpubench.config.run_config import DdpOptions
from mgpubench.config.types import (
    DEFAULT_MAX_ROUNDS,
    DEFAULT_OPTIMIZER,
    DEFAULT_OUT,
    DEFAULT_TIMEOUT_S,
    SYNTHETIC,
    DeviceChoice,
    Mode,
    Optimizer,
    Precision,
    Scaling,
    is_folder,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a person asked for. None means that the option was not given."""

    modes: tuple[Mode, ...] | None = None
    """Modes to run; None means single, dp and ddp, as far as they make sense."""
    gpus: tuple[int, ...] | None = None
    """Numbers of devices for all modes but single (counts, not indices)."""
    device: DeviceChoice | None = None
    """Where to run; None means auto, or CPU in a smoke run."""
    model: str | None = None
    batch_per_gpu: int | None = None
    """Weak scaling: samples that each device takes at once, a micro-batch."""
    global_batch: int | None = None
    """Strong scaling: samples that all devices together take a step."""
    data: str = SYNTHETIC
    """`synthetic`, `synthetic-host`, or the path of an ImageFolder."""
    skip_bad_images: bool = False
    """Replace an image that cannot be read by the next one, and count it."""
    image_size: int | None = None
    precision: Precision | None = None
    optimizer: Optimizer = DEFAULT_OPTIMIZER
    accumulate: int = 1
    """Micro-batches of a step, whose gradients are summed before one optimizer update."""
    log_every: int = 0
    """Steps between two lines of loss; 0: none."""
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
    """Backend of the process group; None means nccl on GPUs and gloo elsewhere."""
    ddp: DdpOptions = field(default_factory=DdpOptions)
    until: str = ""
    """Add rounds `until` everything is `decided`, or known to a width such as `2%`."""
    max_rounds: int | None = None
    """At most so many rounds with `until`."""
    duration_s: float | None = None
    """Repeat rounds until so many seconds are over."""
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
        check_request(self)

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
