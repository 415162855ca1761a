"""Models by name, and the wrapper that every mode trains.

All start from random weights: weights do not change the speed, and nothing is downloaded.
"""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

from mgpubench.config import BUILTIN_MODELS, Precision
from mgpubench.errors import RequestRefused, TorchUnavailable
from mgpubench.records import ModelFacts

# ImageNet's statistics, as the tutorial's Normalize has them, on the 0..255 scale of uint8 images.
IMAGENET_MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
IMAGENET_STD = (0.229 * 255, 0.224 * 255, 0.225 * 255)


class TrainableModel(nn.Module):
    """What goes inside DataParallel or DistributedDataParallel: uint8 images in, fp32 logits out.

    Autocast is entered here, inside the wrapped module, because DataParallel's replica threads do
    not inherit the autocast dtype: bf16 set around it would silently become fp16.
    """

    def __init__(self, model: nn.Module, precision: Precision) -> None:
        super().__init__()
        self.model = model
        self.autocast_dtype = torch.bfloat16 if precision == "amp-bf16" else None
        # No buffers: DDP and DataParallel would broadcast them in every step, which the user's own
        # model does not make them do.
        self._statistics: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def forward(self, images: Tensor) -> Tensor:
        """Logits of shape (N, classes) for uint8 images of shape (N, 3, S, S)."""
        mean, std = self._statistics_on(images.device)
        normalized = (images.float() - mean) / std
        with self._autocast(images.device.type):
            logits: Tensor = self.model(normalized)
        return logits.float()

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


def build_model(name: str, num_classes: int, precision: Precision) -> TrainableModel:
    """A model with random weights on the current default device.

    Raises:
        RequestRefused: if there is no such model.
    """
    build = {"tiny-cnn": _tiny_cnn, "mlp": _mlp}.get(name)
    model = build(num_classes) if build else _from_torchvision(name, num_classes)
    return TrainableModel(model, precision)


def inspect_model(name: str, num_classes: int) -> ModelFacts:
    """Size of a model, without allocating it.

    Raises:
        RequestRefused: if there is no such model.
    """
    with torch.device("meta"):
        model = build_model(name, num_classes, "fp32")
    parameters = list(model.parameters())
    return ModelFacts(
        num_parameters=sum(p.numel() for p in parameters),
        parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
    )


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
    known = [model for model in torchvision.models.list_models() if _is_supported(model)]
    if name not in known:
        raise RequestRefused(
            f"--model {name} is not known", f"Known: {', '.join([*BUILTIN_MODELS, *known])}."
        )
    model: nn.Module = torchvision.models.get_model(name, weights=None, num_classes=num_classes)
    return model


def _is_supported(name: str) -> bool:
    return "res" in name and name.removeprefix("wide_").startswith(("resnet", "resnext"))
