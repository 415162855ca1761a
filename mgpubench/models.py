"""Models by name, and the wrapper that every mode trains.

All start from random weights: weights do not change the speed, and nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mgpubench.config import BUILTIN_MODELS, Precision, RunConfig, default_image_size
from mgpubench.errors import RequestRefused, TorchUnavailable
from mgpubench.records import ModelFacts

InputSize = tuple[int, int]
"""Samples that one replica takes, and the image size."""

# ImageNet's statistics, as the tutorial's Normalize has them, on the 0..255 scale of uint8 images.
IMAGENET_MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
IMAGENET_STD = (0.229 * 255, 0.224 * 255, 0.225 * 255)


class TrainableModel(nn.Module):
    """What goes inside DataParallel or DistributedDataParallel: uint8 images in, fp32 logits out.

    Autocast is entered here, inside the wrapped module, because DataParallel's replica threads do
    not inherit the autocast dtype: bf16 set around it would silently become fp16.
    """

    def __init__(
        self, model: nn.Module, precision: Precision, *, channels_last: bool = False
    ) -> None:
        super().__init__()
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format
        self.model = model.to(memory_format=self._memory_format) if channels_last else model
        self.autocast_dtype = torch.bfloat16 if precision == "amp-bf16" else None
        # No buffers: DDP and DataParallel would broadcast them in every step, which the user's own
        # model does not make them do.
        self._statistics: dict[torch.device, tuple[Tensor, Tensor]] = {}
        self._checked: set[torch.device] = set()

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Logits for uint8 images of shape (N, 3, S, S): the main ones first, then auxiliary ones.

        Each has the shape (N, classes).
        """
        mean, std = self._statistics_on(images.device)
        normalized = ((images.float() - mean) / std).contiguous(memory_format=self._memory_format)
        with self._autocast(images.device.type):
            self._check_dtype(images.device)
            output = self.model(normalized)
        return tuple(logits.float() for logits in all_logits(output))

    def _statistics_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """ImageNet's mean and deviation, made once for each device that a replica runs on."""
        if device not in self._statistics:
            mean, std = (
                torch.tensor(values, device=device).view(1, 3, 1, 1)
                for values in (IMAGENET_MEAN, IMAGENET_STD)
            )
            self._statistics[device] = mean, std
        return self._statistics[device]

    def _autocast(self, device_type: str) -> contextlib.AbstractContextManager[object]:
        if self.autocast_dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(device_type, dtype=self.autocast_dtype)

    def _check_dtype(self, device: torch.device) -> None:
        """Multiply two numbers as the model would, in the first step of each replica.

        Raises:
            RuntimeError: if products come in another type than the precision asked for.
        """
        if device in self._checked:
            return
        self._checked.add(device)
        number = torch.ones(1, 1, device=device)
        expected = self.autocast_dtype or torch.float32
        if (found := (number @ number).dtype) != expected:
            raise RuntimeError(f"matrix products run in {found}, and should in {expected}")


def all_logits(output: Tensor | tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
    """Main and auxiliary logits; GoogLeNet and Inception give a tuple, with None where unused."""
    if isinstance(output, Tensor):
        return (output,)
    return tuple(logits for logits in output if logits is not None)


def build_model(config: RunConfig, num_classes: int) -> TrainableModel:
    """The model of a run with random weights, in the memory format of the run.

    Raises:
        RequestRefused: if there is no such model.
    """
    return TrainableModel(
        _build(config.model, num_classes), config.precision, channels_last=config.channels_last
    )


def inspect_model(name: str, num_classes: int, inputs: Sequence[InputSize]) -> ModelFacts:
    """Size of a model, and whether it takes the inputs of the plan; nothing is computed.

    Raises:
        RequestRefused: if there is no such model, or it cannot take one of the inputs.
    """
    model = TrainableModel(_on_meta(name, num_classes), "fp32")
    for batch, image_size in inputs:
        _try_input(model, name, batch, image_size)
    parameters = list(model.parameters())
    return ModelFacts(
        num_parameters=sum(p.numel() for p in parameters),
        parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
    )


def _on_meta(name: str, num_classes: int) -> nn.Module:
    try:
        with torch.device("meta"):
            return _build(name, num_classes)
    except NotImplementedError:
        # Some constructors look at numbers, which tensors on the meta device do not have.
        return _build(name, num_classes).to("meta")


def _try_input(model: nn.Module, name: str, batch: int, image_size: int) -> None:
    """One forward pass in training mode on the meta device, where only shapes are real."""
    images = torch.empty(batch, 3, image_size, image_size, dtype=torch.uint8, device="meta")
    try:
        model(images)
    # Models refuse a size in many ways: assertions, ValueError, RuntimeError of a layer.
    except Exception as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        own = default_image_size(name)
        raise RequestRefused(
            f"--model {name} cannot be trained on {batch} x 3 x {image_size} x {image_size} per "
            f"device: {reason}",
            f"Its own image size is {own} (--image-size {own})"
            + ("; a batch of 1 leaves BatchNorm nothing to average." if batch == 1 else "."),
        ) from error


def _build(name: str, num_classes: int) -> nn.Module:
    build = {"tiny-cnn": _tiny_cnn, "mlp": _mlp}.get(name)
    return build(num_classes) if build else _from_torchvision(name, num_classes)


def _tiny_cnn(num_classes: int) -> nn.Module:
    """Three convolutions with BatchNorm: quick on a CPU, with a ResNet's kinds of layers."""
    return nn.Sequential(
        *_convolution(3, 16), *_convolution(16, 32), *_convolution(32, 64),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, num_classes),
    )  # fmt: skip


def _convolution(channels_in: int, channels_out: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(channels_in, channels_out, kernel_size=3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    )


def _mlp(num_classes: int) -> nn.Module:
    """Many parameters and little arithmetic: communication shows first here. No BatchNorm."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(16), nn.Flatten(),
        nn.Linear(3 * 16 * 16, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
        nn.Linear(1024, num_classes),
    )  # fmt: skip


def _from_torchvision(name: str, num_classes: int) -> nn.Module:
    try:
        import torchvision
    except ImportError as error:
        raise TorchUnavailable(
            f"--model {name} needs torchvision, which cannot be imported: {error}",
            f"Install the torchvision of your torch, or use --model {BUILTIN_MODELS[0]}.",
        ) from error
    if name not in torchvision.models.list_models(module=torchvision.models):
        raise _unknown(name)
    # Their own initialisation takes seconds; random weights of any kind train at the same speed.
    extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model: nn.Module = torchvision.models.get_model(
        name, weights=None, num_classes=num_classes, **extra
    )
    return model


def _unknown(name: str) -> RequestRefused:
    """Why torchvision has no such classification model, and what is near."""
    from torchvision import models

    for kind in ("detection", "segmentation", "video", "quantization", "optical_flow"):
        if name in models.list_models(module=getattr(models, kind)):
            return RequestRefused(
                f"--model {name} is a {kind} model, and mgpubench trains image classification",
                "Use a classification model, such as resnet50.",
            )
    known = [*BUILTIN_MODELS, *models.list_models(module=models)]
    near = difflib.get_close_matches(name, known, n=3)
    return RequestRefused(
        f"--model {name} is not known",
        f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}.",
    )
