"""What a request refuses on any machine."""

from __future__ import annotations

from typing import Any

import pytest

from mgpubench.config.request import Request
from mgpubench.config.request_checks import check_divisible, width_of
from mgpubench.config.run_config import DdpOptions
from mgpubench.errors import RequestRefused

BOUNDS = "and must be above 0 and at most 2592000 seconds"
REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    (
        {"batch_per_gpu": 8, "global_batch": 16},
        "--batch-per-gpu 8 and --global-batch 16 exclude each other",
        "Give --batch-per-gpu for weak scaling or --global-batch for strong scaling.",
    ),
    (
        {"gpus": (0,)},
        "--gpus takes numbers of GPUs, at least 1, not 0",
        "It is a count and not an index; choose which GPUs with CUDA_VISIBLE_DEVICES.",
    ),
    (
        {"gpus": (2, -1)},
        "--gpus takes numbers of GPUs, at least 1, not 2,-1",
        "It is a count and not an index; choose which GPUs with CUDA_VISIBLE_DEVICES.",
    ),
    (
        {"gpus": (8,), "global_batch": 9},
        "--global-batch 9 cannot be shared equally by 8 devices",
        "Every device must get the same number of samples; try 8 or 16.",
    ),
    (
        {"gpus": (8,), "global_batch": 4},
        "--global-batch 4 cannot be shared equally by 8 devices",
        "Every device must get the same number of samples; try 8.",
    ),
    (
        {"gpus": (2, 3), "global_batch": 16},
        "--global-batch 16 cannot be shared equally by 3 devices",
        "Every device must get the same number of samples; try 15 or 18.",
    ),
    (
        {"device": "cpu", "precision": "tf32"},
        "--precision tf32 needs an NVIDIA GPU; a CPU has no TF32",
        "Use --precision fp32, or leave the option out.",
    ),
    (
        {"smoke": True, "precision": "tf32"},
        "--precision tf32 needs an NVIDIA GPU; a CPU has no TF32",
        "Use --precision fp32, or leave the option out.",
    ),
    (
        {"device": "cpu", "oversubscribe": True},
        "--oversubscribe puts several replicas on one GPU, and has no meaning on a CPU",
        "Leave it out: on a CPU the replicas share the cores anyway.",
    ),
    ({"batch_per_gpu": 0}, "--batch-per-gpu is 0, and must be at least 1", ""),
    ({"global_batch": -8}, "--global-batch is -8, and must be at least 1", ""),
    ({"image_size": 0}, "--image-size is 0, and must be at least 1", ""),
    ({"workers_per_gpu": -1}, "--workers-per-gpu is -1, and must be at least 0", ""),
    ({"workers_per_gpu": 513}, "--workers-per-gpu is 513, and must be at most 512", ""),
    ({"warmup_steps": -1}, "--warmup-steps is -1, and must be at least 0", ""),
    ({"steps": 0}, "--steps is 0, and must be at least 1", ""),
    ({"rounds": 0}, "--rounds is 0, and must be at least 1", ""),
    (
        {
            "modes": ("single", "dp"),
            "ddp": DdpOptions(bucket_cap_mb=50.0, find_unused_parameters=True),
        },
        "--bucket-cap-mb, --find-unused-parameters: only for ddp, which --mode single,dp does not "
        "run",
        "Leave them out, or use --mode ddp.",
    ),
    (
        {"modes": ("single", "dp"), "backend": "gloo"},
        "--backend: only for ddp, fsdp and deepspeed, which --mode single,dp does not run",
        "Leave it out, or use --mode ddp.",
    ),
    (
        {"modes": ("fsdp",), "ddp": DdpOptions(static_graph=True)},
        "--static-graph: only for ddp, which --mode fsdp does not run",
        "Leave it out, or use --mode ddp.",
    ),
    *(
        (
            {"ddp": DdpOptions(bucket_cap_mb=size)},
            f"--bucket-cap-mb is {size:g}, and must be a number above 0",
            "",
        )
        for size in (0.0, -1.0, float("inf"), float("nan"))
    ),
    (
        {"device": "cpu", "backend": "nccl"},
        "--backend nccl needs NVIDIA GPUs",
        "Use --backend gloo, or leave it out.",
    ),
    (
        {"compiled": True, "modes": ("dp",)},
        "--compile and --mode dp exclude each other: in DataParallel's replicas compiled models "
        "have run uncompiled, or failed",
        "Use --compile with --mode single or ddp.",
    ),
    (
        {"cudnn_benchmark": True, "modes": ("single", "dp")},
        "--cudnn-benchmark and --mode dp exclude each other: cuDNN remembers its choices in the "
        "thread that made them, and DataParallel starts new threads in every step, which would try "
        "all algorithms again",
        "Use --cudnn-benchmark with --mode single or ddp.",
    ),
    (
        {"compiled": True, "modes": ("ddp", "fsdp")},
        "--compile and --mode fsdp exclude each other: torch.compile stops at every unit of a "
        "sharded model, and has failed there",
        "Use --compile with --mode single or ddp.",
    ),
    (
        {"compiled": True, "modes": ("deepspeed",)},
        "--compile and --mode deepspeed exclude each other: it would keep the gradients of the "
        "pass that compiles the model",
        "Use --compile with --mode single or ddp.",
    ),
    (
        {"channels_last": True, "modes": ("deepspeed",)},
        "--channels-last and --mode deepspeed exclude each other: it puts all weights into the "
        "default memory format",
        "Use --channels-last with the other modes.",
    ),
    *(
        (
            {"precision": precision, "modes": ("deepspeed", "ddp")},
            f"--precision {precision} and --mode deepspeed exclude each other: DeepSpeed has a way "
            "of its own, which is not the work of the other modes",
            "Use --precision amp-bf16, tf32 or fp32.",
        )
        for precision in ("amp-fp16", "bf16", "fp16")
    ),
    (
        {"channels_last": True, "modes": ("ddp", "fsdp")},
        "--channels-last and --mode fsdp exclude each other: torch shares out only weights in the "
        "default memory format",
        "Use --channels-last with the other modes.",
    ),
    *(
        (
            {"model": name},
            f"--model {name} is not package.module:function",
            "For the function make_net in nets/small.py it is nets.small:make_net",
        )
        for name in (":f", "m:", "nets/small.py:f", "a:b:c", "a.:b", "m:f()", ":")
    ),
    (
        {"skip_bad_images": True},
        "--skip-bad-images needs a folder of images, and --data is synthetic",
        "",
    ),
    ({"model": ""}, "--model is empty", "Is a shell variable unset?"),
    ({"data": ""}, "--data is empty", "Is a shell variable unset?"),
    ({"out": ""}, "--out is empty", "Is a shell variable unset?"),
    *(
        ({"until": text}, f"--until is {text}, and must be decided or a percentage such as 2%", "")
        for text in ("0%", "abc", "2", "100%", "-1%", "nan%", "2 percent", "%", "Decided")
    ),
    *(
        (
            {"duration_s": 60.0, **other},
            f"--duration and {option} exclude each other",
            "--duration repeats rounds until the time is up.",
        )
        for option, other in (("--rounds", {"rounds": 3}), ("--until", {"until": "decided"}))
    ),
    *(
        (
            {"duration_s": seconds},
            f"--duration is {seconds:g} seconds, and must be above 0 and at most 2592000",
            "",
        )
        for seconds in (0.0, 1e9)
    ),
    ({"max_rounds": 9}, "--max-rounds has no meaning without --until", ""),
    (
        {"until": "decided", "max_rounds": 0},
        "--max-rounds is 0, and must be at least 1",
        "",
    ),
    (
        {"until": "decided", "rounds": 9, "max_rounds": 8},
        "--rounds 9 is more than --max-rounds 8",
        "The rounds of --until begin with --rounds and end with --max-rounds.",
    ),
    (
        {"until": "2%", "rounds": 51},
        "--rounds 51 is more than --max-rounds 50",
        "The rounds of --until begin with --rounds and end with --max-rounds.",
    ),
    *(
        (
            {"cool_down_s": seconds},
            f"--cool-down is {seconds:g}, and must be from 0 to 2592000 seconds",
            "",
        )
        for seconds in (-1.0, float("nan"), float("inf"))
    ),
    (
        {"variants": (Request(variant="a"),)},
        "there is only one --variant, a, and nothing to compare it with",
        'Add another one, such as --variant "default:".',
    ),
    (
        {"variants": (Request(variant="a"), Request(variant="b"), Request(variant="a"))},
        "two variants have the name a",
        "Give each its own name; --aa compares equal runs.",
    ),
    ({"seed": 2**31}, "--seed is 2147483648, and must be at most 2147483647", ""),
    ({"gpus": (5000,)}, "--gpus is 5000, and must be at most 1024", ""),
    ({"timeout_s": 0.0}, f"--timeout is 0, {BOUNDS}", ""),
    ({"timeout_s": -2.5}, f"--timeout is -2.5, {BOUNDS}", ""),
    (
        {"timeout_s": float("nan")},
        f"--timeout is nan, {BOUNDS}",
        "",
    ),
    (
        {"timeout_s": float("inf")},
        f"--timeout is inf, {BOUNDS}",
        "",
    ),
]


@pytest.mark.parametrize(
    ("options", "message", "hint"), REFUSALS, ids=[str(options) for options, _, _ in REFUSALS]
)
def test_an_impossible_request_is_refused(options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        Request(**options)
    assert caught.value.message == message
    assert caught.value.hint == hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gpus": (8,), "global_batch": 16},
        {"gpus": (1, 2, 4), "global_batch": 4},
        {"warmup_steps": 0, "workers_per_gpu": 0},
        {"device": "cuda", "smoke": True, "precision": "tf32"},
        {"device": "auto", "oversubscribe": True},
        {"model": "nets.small:make_net"},
        {"compiled": True, "modes": ("single", "ddp")},
        {"compiled": True},
        {"skip_bad_images": True, "data": "photos"},
        {"modes": ("ddp",), "ddp": DdpOptions(bucket_cap_mb=0.5), "backend": "gloo"},
        {"ddp": DdpOptions(static_graph=True)},
        {"modes": ("single",), "ddp": DdpOptions()},
        {"until": "decided"},
        {"until": "2%", "rounds": 50},
        {"until": "0.5%", "rounds": 8, "max_rounds": 8},
        {"cool_down_s": 0.5},
        {"variants": (Request(variant="a"), Request(variant="b"))},
    ],
    ids=str,
)
def test_a_possible_request_is_accepted(options: dict[str, Any]) -> None:
    Request(**options)


@pytest.mark.parametrize(
    ("global_batch", "num_devices"), [(16, 8), (8, 8), (9, 1), (9, 3), (None, 8)]
)
def test_a_global_batch_that_the_devices_divide_is_accepted(
    global_batch: int | None, num_devices: int
) -> None:
    check_divisible(global_batch, num_devices)


@pytest.mark.parametrize(
    ("options", "wants_cpu"),
    [
        ({}, False),
        ({"device": "auto"}, False),
        ({"device": "cuda"}, False),
        ({"device": "cpu"}, True),
        ({"smoke": True}, True),
        ({"smoke": True, "device": "cpu"}, True),
        ({"smoke": True, "device": "cuda"}, False),
        ({"smoke": True, "device": "auto"}, False),
    ],
    ids=str,
)
def test_a_request_knows_whether_it_wants_a_cpu(options: dict[str, Any], wants_cpu: bool) -> None:
    assert Request(**options).wants_cpu is wants_cpu


def test_scaling_follows_from_the_batch_that_is_fixed() -> None:
    assert Request().scaling == "weak"
    assert Request(batch_per_gpu=8).scaling == "weak"
    assert Request(global_batch=8).scaling == "strong"


@pytest.mark.parametrize(
    ("data", "uses_folder"),
    [("synthetic", False), ("synthetic-host", False), ("photos", True), ("./synthetic", True)],
)
def test_data_is_a_folder_unless_synthetic(data: str, uses_folder: bool) -> None:
    assert Request(data=data).uses_folder is uses_folder


@pytest.mark.parametrize(
    ("until", "width"), [("decided", None), ("2%", 0.02), ("0.5%", 0.005), ("99.9%", 0.999)]
)
def test_until_is_a_word_or_a_share_of_one(until: str, width: float | None) -> None:
    assert width_of(until) == (width if width is None else pytest.approx(width, rel=1e-12))


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, 0),
        ({"rounds": 7}, 7),
        ({"until": "decided"}, 50),
        ({"until": "decided", "rounds": 7}, 50),
        ({"until": "decided", "rounds": 7, "max_rounds": 9}, 9),
    ],
    ids=str,
)
def test_a_request_knows_how_many_rounds_it_may_come_to(
    options: dict[str, Any], limit: int
) -> None:
    assert Request(**options).round_limit == limit


def test_a_request_without_variants_is_its_own_only_part() -> None:
    request = Request(steps=7)
    assert request.parts == (request,)
    pair = (Request(variant="a"), Request(variant="b"))
    assert Request(variants=pair).parts == pair
