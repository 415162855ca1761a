"""What makes a request impossible on any machine; checked without torch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mgpubench.config.mode_checks import check_modes
from mgpubench.config.types import (
    DECIDED,
    MAX_GPUS,
    MAX_IMAGE_SIZE,
    MAX_NUMBER,
    MAX_TIMEOUT_S,
    MAX_WORKERS,
    is_own_model,
)
from mgpubench.errors import RequestRefused

if TYPE_CHECKING:
    from mgpubench.config.request import Request


def check_request(request: Request) -> None:
    """Check a request, and name the options and numbers.

    Raises:
        RequestRefused: if it is impossible or contradicts itself.
    """
    for check in (
        _check_batch,
        _check_numbers,
        _check_texts,
        _check_model,
        _check_gpus,
        _check_device,
        check_modes,
        _check_until,
        _check_duration,
        _check_variants,
    ):
        check(request)


def _check_batch(request: Request) -> None:
    if request.batch_per_gpu is not None and request.global_batch is not None:
        raise RequestRefused(
            f"--batch-per-gpu {request.batch_per_gpu} and --global-batch {request.global_batch} "
            "exclude each other",
            "Give --batch-per-gpu for weak scaling or --global-batch for strong scaling.",
        )


def _check_numbers(request: Request) -> None:
    for option, value, least in (
        ("--batch-per-gpu", request.batch_per_gpu, 1),
        ("--global-batch", request.global_batch, 1),
        ("--accumulate", request.accumulate, 1),
        ("--log-every", request.log_every, 0),
        ("--warmup-steps", request.warmup_steps, 0),
        ("--steps", request.steps, 1),
        ("--rounds", request.rounds, 1),
        ("--seed", request.seed, 0),
        ("--max-rounds", request.max_rounds, 1),
    ):
        if value is not None:
            check_number(option, value, least)
    if request.image_size is not None:
        check_number("--image-size", request.image_size, 1, MAX_IMAGE_SIZE)
    if request.workers_per_gpu is not None:
        check_number("--workers-per-gpu", request.workers_per_gpu, 0, MAX_WORKERS)
    if not 0 < request.timeout_s <= MAX_TIMEOUT_S:
        raise RequestRefused(
            f"--timeout is {request.timeout_s:g}, and must be above 0 and at most "
            f"{MAX_TIMEOUT_S:.0f} seconds"
        )
    if not 0 <= request.cool_down_s <= MAX_TIMEOUT_S:
        raise RequestRefused(
            f"--cool-down is {request.cool_down_s:g}, and must be from 0 to {MAX_TIMEOUT_S:.0f} "
            "seconds"
        )
    bucket_cap_mb = request.ddp.bucket_cap_mb
    if bucket_cap_mb is not None and not 0 < bucket_cap_mb <= MAX_NUMBER:
        raise RequestRefused(f"--bucket-cap-mb is {bucket_cap_mb:g}, and must be a number above 0")


def check_number(option: str, value: int, least: int, most: int = MAX_NUMBER) -> None:
    """Refuse a number that an option does not take.

    Raises:
        RequestRefused: naming the bound that it is beyond.
    """
    if not least <= value <= most:
        bound = f"at least {least}" if value < least else f"at most {most}"
        raise RequestRefused(f"{option} is {value}, and must be {bound}")


def _check_texts(request: Request) -> None:
    for option, text in (
        ("--data", request.data),
        ("--model", request.model),
        ("--out", request.out),
    ):
        if text == "":
            raise RequestRefused(f"{option} is empty", "Is a shell variable unset?")


def _check_model(request: Request) -> None:
    if request.model is not None and is_own_model(request.model):
        module, _, function = request.model.partition(":")
        if not all(name.isidentifier() for name in [*module.split("."), function]):
            raise RequestRefused(
                f"--model {request.model} is not package.module:function",
                "For the function make_net in nets/small.py it is nets.small:make_net",
            )
    if request.skip_bad_images and not request.uses_folder:
        raise RequestRefused(
            f"--skip-bad-images needs a folder of images, and --data is {request.data}"
        )


def _check_gpus(request: Request) -> None:
    if request.gpus is None:
        return
    if not request.gpus or min(request.gpus) < 1:
        raise RequestRefused(
            f"--gpus takes numbers of GPUs, at least 1, not {','.join(map(str, request.gpus))}",
            "It is a count and not an index; choose which GPUs with CUDA_VISIBLE_DEVICES.",
        )
    if max(request.gpus) > MAX_GPUS:
        raise RequestRefused(f"--gpus is {max(request.gpus)}, and must be at most {MAX_GPUS}")
    for count in request.gpus:
        check_divisible(request.global_batch, count, request.accumulate)


def _check_device(request: Request) -> None:
    if request.wants_cpu and request.precision == "tf32":
        raise RequestRefused(
            "--precision tf32 needs an NVIDIA GPU; a CPU has no TF32",
            "Use --precision fp32, or leave the option out.",
        )
    if request.wants_cpu and request.oversubscribe:
        raise RequestRefused(
            "--oversubscribe puts several replicas on one GPU, and has no meaning on a CPU",
            "Leave it out: on a CPU the replicas share the cores anyway.",
        )


def _check_until(request: Request) -> None:
    if not request.until:
        if request.max_rounds is not None:
            raise RequestRefused("--max-rounds has no meaning without --until")
        return
    width_of(request.until)
    if (request.rounds or 1) > request.round_limit:
        raise RequestRefused(
            f"--rounds {request.rounds} is more than --max-rounds {request.round_limit}",
            "The rounds of --until begin with --rounds and end with --max-rounds.",
        )


def _check_duration(request: Request) -> None:
    if request.duration_s is None:
        return
    for option, value in (("--rounds", request.rounds), ("--until", request.until)):
        if value:
            raise RequestRefused(
                f"--duration and {option} exclude each other",
                "--duration repeats rounds until the time is up.",
            )
    if not 0 < request.duration_s <= MAX_TIMEOUT_S:
        raise RequestRefused(
            f"--duration is {request.duration_s:g} seconds, and must be above 0 and at most "
            f"{MAX_TIMEOUT_S:.0f}"
        )


def _check_variants(request: Request) -> None:
    names = [each.variant for each in request.variants]
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


class UnequalShares(RequestRefused):
    """The devices cannot share the global batch equally."""


def check_divisible(global_batch: int | None, num_devices: int, accumulate: int = 1) -> None:
    """Refuse a global batch that devices and micro-batches cannot share equally.

    torch.nn.DataParallel would cut 9 samples for 8 GPUs into 2, 2, 2, 2, 1, and leave three idle.

    Raises:
        UnequalShares: if the number of parts does not divide `global_batch`.
    """
    parts = num_devices * accumulate
    if global_batch is None or global_batch % parts == 0:
        return
    below = global_batch // parts * parts
    nearest = f"{below} or {below + parts}" if below else f"{parts}"
    sharers = f"{num_devices} devices"
    if accumulate > 1:
        sharers += f" x {accumulate} micro-batches (--accumulate)"
    raise UnequalShares(
        f"--global-batch {global_batch} cannot be shared equally by {sharers}",
        f"Every device must get the same number of samples; try {nearest}.",
    )
