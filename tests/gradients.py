"""One training step as each mode makes it, with its gradients as the result; run in workers."""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mgpubench.config.run_config import RunConfig
from mgpubench.training.devices import Part
from mgpubench.training.process_group import process_group
from mgpubench.training.rank import make_part
from mgpubench.training.step import TrainStep
from mgpubench.training.technique import Wrapped
from mgpubench.training.torch_settings import set_up_process
from mgpubench.training.trainable import build_model


class Tied(torch.nn.Module):
    """Two layers that share one weight, and a buffer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = torch.nn.AdaptiveAvgPool2d(2)
        self.first, self.second = torch.nn.Linear(12, 12), torch.nn.Linear(12, 12)
        self.second.weight = self.first.weight
        self.head = torch.nn.Linear(12, 10)
        self.register_buffer("scale", torch.full((1,), 2.0))
        self.register_buffer("same_scale", self.scale)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        hidden = self.second(self.first(self.pool(images).flatten(1)) * self.scale)
        logits: Tensor = self.head(hidden * self.same_scale)
        return logits


def tied() -> torch.nn.Module:
    """For `--model tests.gradients:tied`."""
    return Tied()


class Recomputed(torch.nn.Module):
    """Keeps no activations of its middle layer: backward computes them again."""

    def __init__(self, *, use_reentrant: bool) -> None:
        super().__init__()
        self.pool = torch.nn.AdaptiveAvgPool2d(2)
        self.first, self.head = torch.nn.Linear(12, 12), torch.nn.Linear(12, 10)
        self.middle = torch.nn.Sequential(torch.nn.Linear(12, 12), torch.nn.Tanh())
        self.use_reentrant = use_reentrant

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        hidden = self.first(self.pool(images).flatten(1))
        hidden = checkpoint(self.middle, hidden, use_reentrant=self.use_reentrant)
        logits: Tensor = self.head(hidden)
        return logits


def recomputed() -> torch.nn.Module:
    """For `--model`: torch's present kind of checkpointing."""
    return Recomputed(use_reentrant=False)


def recomputed_reentrantly() -> torch.nn.Module:
    """For `--model`: torch's older kind, which runs backward within backward."""
    return Recomputed(use_reentrant=True)


def recurrent() -> torch.nn.Module:
    """For `--model`: an LSTM keeps a list of its weights."""
    return Recurrent()


class Recurrent(torch.nn.Module):
    """Reads an image line by line."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = torch.nn.LSTM(3 * 32, 12, batch_first=True)
        self.head = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(12, 10))

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        lines = images.permute(0, 2, 1, 3).flatten(2)
        logits: Tensor = self.head(self.cells(lines)[0][:, -1])
        return logits


def global_batch(config: RunConfig) -> tuple[Tensor, Tensor]:
    """The same images and labels, however many devices share them."""
    generator = torch.Generator().manual_seed(7)
    shape = (config.global_batch, 3, config.image_size, config.image_size)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return images, torch.randint(0, 10, shape[:1], generator=generator)


def one_step(
    config: RunConfig, rank: int, runner: str, folder: Path, listing: Path
) -> dict[str, Any]:
    """Gradients and weights after one step, and what the model itself saw and computed in."""
    part = make_part(replace(config, num_classes=10), rank, folder, listing)
    set_up_process(part)
    seen: list[int] = []
    types: set[str] = set()
    with process_group(part) if config.mode == "ddp" else nullcontext():
        model = build_model(part)
        model.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
        for layer in model.modules():
            if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear):
                layer.register_forward_hook(lambda layer, inputs, out: types.add(str(out.dtype)))
        wrapped = _wrap(model, runner, part)
        step = TrainStep(Wrapped(model=wrapped, plain=model), part)
        images, labels = global_batch(config)
        mine = slice(rank * part.batch, (rank + 1) * part.batch)
        loss = step(iter([(images[mine], labels[mine])]))
        return {
            "loss": float(loss),
            "seen": seen,
            "types": sorted(types),
            "gradients": _numbers(
                {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
            ),
            "weights": _numbers(dict(model.named_parameters())),
            "ddp": _ddp_settings(wrapped),
            "buffers": _numbers(dict(model.named_buffers())),
        }


def _wrap(model: torch.nn.Module, runner: str, part: Part) -> torch.nn.Module:
    if part.config.mode == "single":
        return model
    wrapped: torch.nn.Module = importlib.import_module(runner).wrap(model, part)
    return wrapped


def _ddp_settings(wrapped: torch.nn.Module) -> dict[str, Any]:
    """The options as DDP itself has them; empty for another wrapper."""
    if not isinstance(wrapped, torch.nn.parallel.DistributedDataParallel):
        return {}
    names = ("static_graph", "find_unused_parameters", "gradient_as_bucket_view")
    return {**{name: getattr(wrapped, name) for name in names}, "cap": wrapped.bucket_bytes_cap}


def _numbers(tensors: dict[str, Tensor]) -> dict[str, list[float]]:
    return {name: tensor.detach().cpu().flatten().tolist() for name, tensor in tensors.items()}


def product_errors(
    config: RunConfig, rank: int, runner: str, folder: Path, listing: Path
) -> dict[str, float]:
    """The error of a matrix product and of a convolution, relative to the largest value."""
    part = make_part(config, rank, folder, listing)
    set_up_process(part)
    generator = torch.Generator().manual_seed(7)
    left, right = torch.randn(2, 1024, 1024, generator=generator)
    images = torch.randn(4, 64, 16, 16, generator=generator)
    weights = torch.randn(64, 64, 3, 3, generator=generator)
    products = {
        "matmul": (torch.matmul, left, right),
        "conv": (torch.nn.functional.conv2d, images, weights),
    }
    return {name: _error(part.device, *product) for name, product in products.items()}


def _error(device: torch.device, multiply: Any, one: Tensor, other: Tensor) -> float:
    exact = multiply(one.double(), other.double())
    found = multiply(one.to(device), other.to(device)).cpu().double()
    return float((found - exact).abs().max() / exact.abs().max())
