"""What a mode cannot do, and options that no mode of a request would use; checked without torch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from mgpubench.config.types import MULTI_PROCESS_MODES, Mode, Precision
from mgpubench.errors import RequestRefused

if TYPE_CHECKING:
    from mgpubench.config.request import Request

NOT_COMPILED: dict[Mode, str] = {
    "dp": "in DataParallel's replicas compiled models have run uncompiled, or failed",
    "fsdp": "torch.compile stops at every unit of a sharded model, and has failed there",
    "deepspeed": "it would keep the gradients of the pass that compiles the model",
}
"""Modes that --compile leaves out, and why."""

NO_CHANNELS_LAST: dict[Mode, str] = {
    "fsdp": "torch shares out only weights in the default memory format",
    "deepspeed": "it puts all weights into the default memory format",
}

TUNED_AGAIN = (
    "cuDNN remembers its choices in the thread that made them, and DataParallel starts new threads "
    "in every step, which would try all algorithms again"
)
"""Why --cudnn-benchmark leaves dp out on GPUs."""

OWN_PRECISIONS: tuple[Precision, ...] = ("amp-fp16", "bf16", "fp16")
"""Those that DeepSpeed does in its own way, with other work: it keeps fp32 weights beside them."""


def check_modes(request: Request) -> None:
    """Check the modes of a request, and the options that only some modes have.

    Raises:
        RequestRefused: if a mode cannot do what is asked, or an option has no use.
    """
    for mode in request.modes or ():
        _check_mode(request, mode)
    _check_use(request, request.ddp.changed, ("ddp",))
    _check_use(request, () if request.backend is None else ("backend",), MULTI_PROCESS_MODES)
    _check_ddp_options(request)


def _check_mode(request: Request, mode: Mode) -> None:
    if request.compiled and mode in NOT_COMPILED:
        raise RequestRefused(
            f"--compile and --mode {mode} exclude each other: {NOT_COMPILED[mode]}",
            "Use --compile with --mode single or ddp.",
        )
    if request.cudnn_benchmark and mode == "dp" and not request.wants_cpu:
        raise RequestRefused(
            f"--cudnn-benchmark and --mode dp exclude each other: {TUNED_AGAIN}",
            "Use --cudnn-benchmark with --mode single or ddp.",
        )
    if request.channels_last and mode in NO_CHANNELS_LAST:
        raise RequestRefused(
            f"--channels-last and --mode {mode} exclude each other: {NO_CHANNELS_LAST[mode]}",
            "Use --channels-last with the other modes.",
        )
    if request.precision in OWN_PRECISIONS and mode == "deepspeed":
        raise RequestRefused(
            f"--precision {request.precision} and --mode deepspeed exclude each other: DeepSpeed "
            "has a way of its own, which is not the work of the other modes",
            "Use --precision amp-bf16, tf32 or fp32.",
        )


def _check_use(request: Request, names: Collection[str], users: Sequence[Mode]) -> None:
    """Refuse options that no run of the plan would use."""
    if not names or request.modes is None or set(users) & set(request.modes):
        return
    options = ", ".join(f"--{name.replace('_', '-')}" for name in names)
    raise RequestRefused(
        f"{options}: only for {_listed(users)}, which --mode {','.join(request.modes)} does not "
        "run",
        f"Leave {'it' if len(names) == 1 else 'them'} out, or use --mode {users[0]}.",
    )


def _listed(modes: Sequence[Mode]) -> str:
    *others, last = modes
    return f"{', '.join(others)} and {last}" if others else last


def check_is_one_run(request: Request, what: str) -> None:
    """Check that a request is for one mode on one number of devices. `what` is made of it.

    Raises:
        RequestRefused: if it has several.
    """
    if request.modes is not None and len(request.modes) != 1:
        raise RequestRefused(
            f"--mode is {','.join(request.modes)}, and {what} has one mode",
            "Choose one. To compare the speed of modes: mgpubench run.",
        )
    if request.gpus is not None and len(request.gpus) != 1:
        raise RequestRefused(
            f"--gpus is {','.join(map(str, request.gpus))}, and {what} has one number of GPUs",
            "Choose one. To compare the speed on several: mgpubench run.",
        )


def check_trainable(modes: Sequence[Mode] | None) -> None:
    """Check that the modes of a request have checkpoints.

    Raises:
        RequestRefused: if one of them has none.
    """
    if "deepspeed" in (modes or ()):
        raise RequestRefused(
            "--mode deepspeed has no checkpoints: it is for mgpubench run alone",
            "Use --mode fsdp, which shares out weights too, or --mode ddp --zero.",
        )


def _check_ddp_options(request: Request) -> None:
    if request.accumulate > 1 and request.ddp.static_graph:
        raise RequestRefused(
            "--accumulate and --static-graph exclude each other: DDP fails if a step with a "
            "static graph has several backward passes",
            "Leave one of the two out.",
        )
    if request.wants_cpu and request.ddp.sync_batchnorm:
        raise refuse_sync_batchnorm()
    if request.wants_cpu and request.backend == "nccl":
        raise RequestRefused(
            "--backend nccl needs NVIDIA GPUs", "Use --backend gloo, or leave it out."
        )


def refuse_sync_batchnorm() -> RequestRefused:
    """The refusal of --sync-batchnorm where it cannot work."""
    return RequestRefused(
        "--sync-batchnorm needs GPUs: torch's SyncBatchNorm does not run on a CPU",
        "Leave it out: BatchNorm then averages over the samples of each device.",
    )
