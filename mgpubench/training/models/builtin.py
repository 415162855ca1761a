"""Two small models that need no torchvision."""

from __future__ import annotations

from torch import nn


def tiny_cnn(num_classes: int) -> nn.Module:
    """Three convolutions with BatchNorm: fast on a CPU, with the kinds of layers of a ResNet."""
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


def mlp(num_classes: int) -> nn.Module:
    """Many parameters and little arithmetic, so that communication dominates. No BatchNorm."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(16), nn.Flatten(),
        nn.Linear(3 * 16 * 16, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
        nn.Linear(1024, num_classes),
    )  # fmt: skip
