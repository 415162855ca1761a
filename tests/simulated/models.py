"""Models for the pretended devices. They draw nothing, since replicas would draw in threads."""

from __future__ import annotations

import torch
import torchvision
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.simulated.accelerator import NAME

CLASSES = 10


def googlenet() -> nn.Module:
    """Three outputs, of which two are auxiliary."""
    return torchvision.models.googlenet(
        num_classes=CLASSES, init_weights=False, dropout=0.0, dropout_aux=0.0
    )


def mobilenet_v3_small() -> nn.Module:
    """Grouped convolutions and squeeze-and-excitation."""
    return torchvision.models.mobilenet_v3_small(num_classes=CLASSES, dropout=0.0)


def vit_b_16() -> nn.Module:
    """ViT-B/16 for images of 32 pixels: four patches."""
    model = torchvision.models.vit_b_16(num_classes=CLASSES, image_size=32)
    # It starts as 0, and then no gradient goes through it.
    nn.init.normal_(model.heads.head.weight, std=0.1)
    return model


class WithBuffers(nn.Module):
    """Buffers that are used, counted up, and left out of the state dict."""

    scale: Tensor
    seen: Tensor
    order: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.head = nn.AdaptiveAvgPool2d(2), nn.Linear(12, CLASSES)
        self.register_buffer("scale", torch.linspace(0.5, 2.0, 12))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("order", torch.arange(12).flip(0), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        self.seen += len(images)
        features = self.pool(images).flatten(1)[:, self.order]
        logits: Tensor = self.head(features * self.scale)
        return logits


class Checkpointed(nn.Module):
    """A part whose forward pass is made again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2)
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        hidden = checkpoint(self.second, self.first(images), use_reentrant=False)
        logits: Tensor = self.head(hidden.flatten(1))
        return logits


class WithPlainTensor(nn.Module):
    """A fault of many own models: a tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, CLASSES)
        self.mask = torch.ones(3, device=f"{NAME}:0")

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.head(images.mean((2, 3)) * self.mask)
        return logits
