"""The values of the options that are not given: the standard ones, and those of a smoke run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """Values of the options that are not given."""

    model: str
    batch_per_gpu: int
    image_size: int | None
    """None: the model's own."""
    warmup_steps: int
    steps: int
    rounds: int


STANDARD = Preset(
    model="resnet50", batch_per_gpu=64, image_size=None, warmup_steps=20, steps=100, rounds=6
)
SMOKE = Preset(model="tiny-cnn", batch_per_gpu=8, image_size=32, warmup_steps=2, steps=5, rounds=1)
