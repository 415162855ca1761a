"""The words of the field, and the limits and defaults of what can be asked for."""

from __future__ import annotations

from typing import Literal, get_args

Mode = Literal["single", "dp", "ddp", "fsdp", "deepspeed"]
EffectiveMode = Literal[
    "single", "dp", "ddp", "fsdp", "deepspeed", "passthrough", "cpu-replicas", "oversubscribed"
]
DeviceType = Literal["cuda", "cpu"]
DeviceChoice = Literal["auto", "cuda", "cpu"]
Precision = Literal["fp32", "tf32", "amp-bf16", "amp-fp16", "bf16", "fp16"]
Optimizer = Literal["sgd", "adam", "adamw"]
CommHook = Literal["none", "fp16", "bf16", "powersgd"]
Scaling = Literal["weak", "strong"]

MODES: tuple[Mode, ...] = get_args(Mode)
DEFAULT_MODES: tuple[Mode, ...] = ("single", "dp", "ddp")
"""What `all` means. The others run only if they are named."""
MULTI_PROCESS_MODES: tuple[Mode, ...] = ("ddp", "fsdp", "deepspeed")
"""With one process per device, and a process group."""
EFFECTIVE_MODES: dict[Mode, tuple[EffectiveMode, ...]] = {
    "single": ("single",),
    "dp": ("dp", "passthrough", "cpu-replicas", "oversubscribed"),
    "ddp": ("ddp", "oversubscribed"),
    "fsdp": ("fsdp", "oversubscribed"),
    "deepspeed": ("deepspeed", "oversubscribed"),
}
"""What can really run when a mode is requested."""
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
BF16_PRECISIONS: tuple[Precision, ...] = ("amp-bf16", "bf16")
FP16_PRECISIONS: tuple[Precision, ...] = ("amp-fp16", "fp16")
HALF_PRECISIONS: tuple[Precision, ...] = ("bf16", "fp16")
"""With weights and inputs of two bytes a number."""
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)
COMM_HOOKS: tuple[CommHook, ...] = get_args(CommHook)
DEVICE_CHOICES: tuple[DeviceChoice, ...] = get_args(DeviceChoice)

SYNTHETIC = "synthetic"
SYNTHETIC_HOST = "synthetic-host"
IMAGE_FOLDER = "imagefolder:"
"""In results a folder of images is this and its name."""

NUM_SYNTHETIC_CLASSES = 1000
"""ImageNet's number of classes; a folder has its own."""

PREFETCH_FACTOR = 2
"""Batches that each loader worker keeps ready; torch's default."""

DEFAULT_TIMEOUT_S = 1800.0
DEFAULT_OUT = "results"
MAX_TIMEOUT_S = 30 * 24 * 3600.0
MAX_GPUS = 1024
MAX_IMAGE_SIZE = 10_000
"""Height and width in pixels. Not far above it, resized images have more than Pillow decodes."""
MAX_WORKERS = 512
"""Loader workers per device. Each is a process; thousands only overload the machine."""
MAX_NUMBER = 2**31 - 1
"""The largest number an option takes: beyond it torch and the C libraries below it overflow."""

DECIDED = "decided"
DEFAULT_MAX_ROUNDS = 50
"""Of `--until`."""

DEFAULT_OPTIMIZER: Optimizer = "sgd"

DEFAULT_MARGIN = 0.02
"""Relative difference that counts: within it two modes are equivalent."""

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


MAX_DEFAULT_WORKERS = 4
"""Loader workers per device by default: the tutorial's four, if there are enough cores."""


def is_own_model(model: str) -> bool:
    """True for `package.module:function`, a user's own model."""
    return ":" in model


def is_folder(data: str) -> bool:
    """True if the data is a folder of images."""
    return data not in (SYNTHETIC, SYNTHETIC_HOST)


PLOT_KINDS = ("throughput", "ratios", "steps", "runs", "temperature", "sessions")
PLOT_FORMATS = ("svg", "png", "pdf")
