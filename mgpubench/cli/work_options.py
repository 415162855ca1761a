"""The options that say what is trained. A variant may set most of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import click

from mgpubench.cli.options import parse_counts, parse_modes
from mgpubench.cli.paths import PATH_TEXT
from mgpubench.config.preset import SMOKE, STANDARD
from mgpubench.config.request import Request
from mgpubench.config.run_config import DdpOptions
from mgpubench.config.types import (
    COMM_HOOKS,
    DEFAULT_OPTIMIZER,
    DEVICE_CHOICES,
    OPTIMIZERS,
    PRECISIONS,
    SYNTHETIC,
)

Decorator = Callable[[Any], Any]

DDP_OPTIONS = tuple(option.name for option in fields(DdpOptions))

bucket_cap_option: Decorator = click.option(
    "--bucket-cap-mb",
    type=float,
    help="DDP: size of all buckets in MiB.  [default: torch's, 25 and 1 for the first]",
)

PLACES: tuple[Decorator, ...] = (
    click.option(
        "--gpus",
        "-g",
        callback=parse_counts,
        metavar="LIST",
        help="Comma list of numbers of GPUs (counts, not indices).  [default: all visible]",
    ),
    click.option(
        "--device",
        type=click.Choice(DEVICE_CHOICES),
        help="Where to run. auto is CUDA if usable, else the CPU.  [default: auto]",
    ),
)
"""Options about devices."""

DEVICES: tuple[Decorator, ...] = (
    click.option(
        "--mode",
        "-m",
        "modes",
        callback=parse_modes,
        metavar="LIST",
        help="Comma list of single,dp,ddp,fsdp,deepspeed, or all, which is single,dp,ddp.  "
        "[default: all]",
    ),
    *PLACES,
)
"""Options about modes and devices."""

WORK: tuple[Decorator, ...] = (
    click.option(
        "--model",
        help="tiny-cnn, mlp, the name of a torchvision image classification model, or your own as "
        f"package.module:function, called without arguments.  [default: {STANDARD.model}]",
    ),
    click.option(
        "--batch-per-gpu",
        "-b",
        type=int,
        help=f"Samples per GPU at once: weak scaling.  [default: {STANDARD.batch_per_gpu}]",
    ),
    click.option(
        "--global-batch",
        type=int,
        help="Samples of all GPUs together per step: strong scaling.",
    ),
    click.option(
        "--data",
        type=PATH_TEXT,
        default=SYNTHETIC,
        show_default=True,
        help="synthetic (made on the device), synthetic-host (in pinned host memory, copied in "
        "each step), or a folder of images with one folder per class.",
    ),
    click.option(
        "--skip-bad-images",
        is_flag=True,
        help="Replace images that cannot be read by other images, and count them.",
    ),
    click.option("--image-size", type=int, help="Height and width.  [default: the model's own]"),
    click.option(
        "--precision",
        type=click.Choice(PRECISIONS),
        help="Number format. fp32 is without TF32, amp is autocast (amp-fp16 with a GradScaler), "
        "and bf16 and fp16 have weights and images in that format.  [default: tf32 on GPUs of "
        "compute capability 8.0 and up, else fp32]",
    ),
    click.option(
        "--optimizer",
        type=click.Choice(OPTIMIZERS),
        default=DEFAULT_OPTIMIZER,
        show_default=True,
        help="sgd with momentum, adam or adamw.",
    ),
    click.option(
        "--accumulate",
        type=int,
        default=1,
        show_default=True,
        help="Micro-batches per step, with one update of the weights. --batch-per-gpu is then the "
        "micro-batch, and the global batch is devices x micro-batch x this number.",
    ),
    click.option(
        "--log-every",
        type=int,
        default=0,
        metavar="STEPS",
        help="Show the mean loss of every so many steps beside the progress, read without waiting "
        "for it.  [default: never]",
    ),
    click.option(
        "--workers-per-gpu",
        type=int,
        help="Loader workers per device.  [default: up to 4, if there are enough cores]",
    ),
    click.option(
        "--warmup-steps",
        type=int,
        help=f"Steps before the measured ones, in no figure.  [default: {STANDARD.warmup_steps}]",
    ),
    click.option("--steps", type=int, help=f"Measured steps per run.  [default: {STANDARD.steps}]"),
    click.option(
        "--compile",
        "compiled",
        is_flag=True,
        help="Compile the model with torch.compile before the warm-up (single and ddp).",
    ),
    click.option(
        "--channels-last",
        is_flag=True,
        help="Keep images and weights in the memory format N, H, W, C. On GPUs DataParallel keeps "
        "it in its first replica alone, so dp is in a table of its own; fsdp and deepspeed cannot "
        "have it.",
    ),
    click.option(
        "--cudnn-benchmark",
        is_flag=True,
        help="Let cuDNN choose its algorithms by trial during the warm-up, in every process. Not "
        "for dp on GPUs, which would try them again in every step.",
    ),
    click.option(
        "--backend",
        type=click.Choice(["nccl", "gloo"]),
        help="ddp, fsdp, deepspeed: backend of the process group.  [default: nccl on GPUs, gloo "
        "elsewhere]",
    ),
    bucket_cap_option,
    click.option(
        "--gradient-as-bucket-view", is_flag=True, help="DDP: keep gradients in the buckets."
    ),
    click.option("--static-graph", is_flag=True, help="DDP: promise the same graph in every step."),
    click.option(
        "--find-unused-parameters",
        is_flag=True,
        help="DDP: search for unused parameters, which takes time.",
    ),
    click.option(
        "--comm-hook",
        type=click.Choice(COMM_HOOKS),
        default=COMM_HOOKS[0],
        show_default=True,
        help="DDP: compress gradients before they are exchanged. powersgd begins at step 2.",
    ),
    click.option(
        "--sync-batchnorm",
        is_flag=True,
        help="DDP on GPUs: let BatchNorm average over the samples of all GPUs.",
    ),
    click.option(
        "--zero",
        is_flag=True,
        help="DDP: keep a part of the optimizer's state on each GPU (ZeroRedundancyOptimizer).",
    ),
)
"""Options that change the work or its settings, which a variant may set."""

PRESETS: tuple[Decorator, ...] = (
    click.option(
        "--smoke",
        is_flag=True,
        help="Quick check for CI and laptops: CPU unless --device says otherwise, 2 devices, "
        f"{SMOKE.model}, {SMOKE.batch_per_gpu} per device, image {SMOKE.image_size}, "
        f"{SMOKE.warmup_steps} + {SMOKE.steps} steps, {SMOKE.rounds} round. "
        "Other options override it.",
    ),
    click.option(
        "--oversubscribe",
        is_flag=True,
        help="Allow several replicas on one GPU. It tests the code and measures nothing.",
    ),
)


def options(*groups: tuple[Decorator, ...]) -> Decorator:
    """A decorator that adds groups of options to a command, in their order."""

    def decorate(command: Any) -> Any:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate


def request_of(values: Mapping[str, Any]) -> Request:
    """A request from the values of its options, with those of DDP in their own object."""
    ddp = DdpOptions(**{name: values[name] for name in DDP_OPTIONS})
    others = {name: value for name, value in values.items() if name not in DDP_OPTIONS}
    return Request(ddp=ddp, **others)
