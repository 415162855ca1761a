"""Which devices a request gets on a machine, or why it gets none."""

from __future__ import annotations

from mgpubench.config.machine_facts import Machine
from mgpubench.config.mode_checks import refuse_sync_batchnorm
from mgpubench.config.request import Request
from mgpubench.config.types import DeviceType, Precision
from mgpubench.errors import RequestRefused

TENSOR_FLOAT_CAPABILITY = (8, 0)
"""From this compute capability on, tensor cores support TF32 and bf16."""


WITHOUT_GPUS = "Add --smoke for a quick check on the CPU, or --device cpu to run all of it there."


def choose_device(
    request: Request, machine: Machine, without_gpus: str = WITHOUT_GPUS
) -> DeviceType:
    """CUDA if it is usable and wanted, otherwise the CPU if that is acceptable.

    `without_gpus` says what to do if GPUs are wanted and there are none.

    Raises:
        RequestRefused: if GPUs were requested explicitly and are not usable.
    """
    if request.wants_cpu:
        return "cpu"
    if machine.gpus:
        _check_count(request, machine)
        return "cuda"
    if option := _option_for_gpus(request):
        raise RequestRefused(
            f"{option} needs GPUs and 0 are usable: {why_no_gpu(machine)}",
            without_gpus,
        )
    return "cpu"


def _option_for_gpus(request: Request) -> str:
    """The option that asks for GPUs; empty if none does."""
    if request.gpus is not None:
        return f"--gpus {_join(request.gpus)}"
    if request.device == "cuda":
        return "--device cuda"
    return "--oversubscribe" if request.oversubscribe else ""


def check_options(request: Request, machine: Machine, device_type: DeviceType) -> None:
    """Refuse options that the chosen devices do not support.

    Raises:
        RequestRefused: naming the option and the devices.
    """
    if request.backend == "nccl":
        _check_nccl(request, machine, device_type)
    if request.ddp.sync_batchnorm and device_type == "cpu":
        raise refuse_sync_batchnorm()
    if request.precision == "tf32" and not has_tf32(machine, device_type):
        devices = ", ".join(gpu.name for gpu in machine.gpus) or "the CPU"
        raise RequestRefused(
            f"--precision tf32 needs GPUs of compute capability 8.0 or higher, not {devices}",
            "Use --precision fp32, or leave the option out.",
        )


def _check_nccl(request: Request, machine: Machine, device_type: DeviceType) -> None:
    if device_type == "cpu":
        raise RequestRefused(
            f"--backend nccl needs GPUs and 0 are usable: {machine.cuda_reason}",
            "Use --backend gloo, or leave it out.",
        )
    if max(request.gpus or (0,)) > machine.num_gpus > 0:
        raise RequestRefused(
            "--backend nccl does not allow several ranks on one GPU, as --oversubscribe needs",
            "Use --backend gloo, or leave one of the two out.",
        )


def has_tf32(machine: Machine, device_type: DeviceType) -> bool:
    """True if every device has tensor cores for TF32."""
    return device_type == "cuda" and all(
        gpu.capability >= TENSOR_FLOAT_CAPABILITY for gpu in machine.gpus
    )


def default_precision(machine: Machine, device_type: DeviceType) -> Precision:
    """TF32 if every device has it, otherwise fp32."""
    return "tf32" if has_tf32(machine, device_type) else "fp32"


def why_no_gpu(machine: Machine) -> str:
    """Torch's reason, and the variable that may hide the GPUs."""
    return f"{machine.cuda_reason}{_visible(machine)}"


def _check_count(request: Request, machine: Machine) -> None:
    visible = machine.num_gpus
    if request.gpus is None or request.oversubscribe or max(request.gpus) <= visible:
        return
    raise RequestRefused(
        f"--gpus {_join(request.gpus)} needs {max(request.gpus)} GPUs and {visible} "
        f"{'is' if visible == 1 else 'are'} usable{_visible(machine)}",
        "A process sees only one MIG slice, however many are listed: use --gpus 1."
        if "MIG-" in (machine.cuda_visible_devices or "")
        else "Ask for fewer, make more visible with CUDA_VISIBLE_DEVICES, or add --device cpu.",
    )


def _visible(machine: Machine) -> str:
    if machine.cuda_visible_devices is None:
        return ""
    return f"; CUDA_VISIBLE_DEVICES={machine.cuda_visible_devices}"


def _join(counts: tuple[int, ...]) -> str:
    return ",".join(map(str, counts))
