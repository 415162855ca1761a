"""What a step does beside the optimizer: clipping, smoothing, waiting for micro-batches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import pytest
import torch

from mgpubench.config.recipe import Recipe
from mgpubench.config.run_config import RunConfig
from mgpubench.training.data.batch import Batch
from mgpubench.training.data.folder import FolderDataset
from mgpubench.training.data.listing import list_images, load_samples
from mgpubench.training.data.loader import folder_feed, open_feed
from mgpubench.training.devices import Part
from mgpubench.training.loop import train
from mgpubench.training.step import TrainStep
from mgpubench.training.technique import Wrapped
from mgpubench.training.torch_settings import set_up_process
from mgpubench.training.trainable import build_model

Make = Callable[..., RunConfig]
PartOf = Callable[..., Part]


def step_of(part: Part, recipe: Recipe | None = None) -> TrainStep:
    set_up_process(part)
    model = build_model(part)
    return TrainStep(Wrapped(model=model, plain=model), part, recipe)


def weights_of(step: TrainStep) -> torch.Tensor:
    parameters = step.optimizer.param_groups[0]["params"]
    return torch.cat([parameter.detach().flatten().clone() for parameter in parameters])


def test_clipping_bounds_the_change_of_the_weights(cpu_config: Make, part_of: PartOf) -> None:
    part = part_of(cpu_config())
    moved = {}
    for limit in (None, 0.01):
        recipe = Recipe(lr=1.0, momentum=0.0, weight_decay=0.0, clip_grad_norm=limit)
        step = step_of(part, recipe)
        before = weights_of(step)
        step(open_feed(part).batches)
        moved[limit] = float((weights_of(step) - before).norm())
    assert moved[0.01] == pytest.approx(0.01, rel=1e-3)
    assert moved[None] > 10 * moved[0.01]


def test_smoothing_gives_every_class_a_share_of_the_target(
    cpu_config: Make, part_of: PartOf
) -> None:
    class Certain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (torch.tensor([[math.log(3.0), 0.0]]) + self.weight,)

    model: Any = Certain()
    recipe = Recipe(lr=0.1, label_smoothing=0.2)
    step = TrainStep(Wrapped(model=model, plain=model), part_of(cpu_config()), recipe)
    loss = step(iter([(torch.zeros(1), torch.zeros(1, dtype=torch.int64))]))
    # 0.9 x -ln 3/4 and 0.1 x -ln 1/4
    assert float(loss) == pytest.approx(0.9 * math.log(4 / 3) + 0.1 * math.log(4))


def test_the_rate_can_be_changed_between_steps(cpu_config: Make, part_of: PartOf) -> None:
    part = part_of(cpu_config())
    step = step_of(part)
    assert step.learning_rate == 0.01
    step.learning_rate = 0.0
    before = weights_of(step)
    step(open_feed(part).batches)
    assert torch.equal(weights_of(step), before)


def test_the_wait_of_a_step_is_that_for_all_its_micro_batches(
    cpu_config: Make, part_of: PartOf
) -> None:
    def slow_batches() -> Iterator[Batch]:
        for batch in repeat((torch.zeros(2), torch.zeros(2))):
            time.sleep(0.01)
            yield batch

    def step(batches: Iterator[Batch]) -> torch.Tensor:
        list(islice(batches, 3))
        return torch.tensor(1.0)

    config = cpu_config(warmup_steps=0, steps=4)
    trace = train(part_of(config), step, slow_batches(), lambda: None)
    assert trace.samples == [6] * 4
    assert all(wait_ns >= 0.03e9 for wait_ns in trace.data_waits_ns)
    waits_s = [wait_ns / 1e9 for wait_ns in trace.data_waits_ns]
    assert all(w <= s for w, s in zip(waits_s, trace.step_times_s, strict=True))


@pytest.fixture
def listing(photos: Callable[..., Path], tmp_path: Path) -> Path:
    """Nine images: five cats and four dogs."""
    path = tmp_path / "listing.json"
    list_images(photos(cat=5, dog=4)).save_samples(path)
    return path


def test_an_augmentation_gets_the_decoded_image_its_epoch_and_its_number(listing: Path) -> None:
    asked: list[tuple[torch.Size, int, int]] = []

    def augment(image: torch.Tensor, epoch: int, number: int) -> torch.Tensor:
        asked.append((image.shape, epoch, number))
        return torch.full((3, 8, 8), epoch, dtype=torch.uint8)

    dataset = FolderDataset(load_samples(listing), 8, augment=augment)
    image, label, remarks = dataset[7, 6]
    assert asked == [(torch.Size((3, 40, 40)), 7, 6)]
    assert (int(image[0, 0, 0]), label, remarks) == (7, 1, ())


@pytest.mark.parametrize("workers", [0, 2])
def test_named_epochs_are_loaded_in_turn_and_then_there_is_an_end(
    cpu_config: Make, part_of: PartOf, listing: Path, workers: int
) -> None:
    config = cpu_config(
        data="photos", image_size=8, batch_per_device=4, accumulate=2, workers_per_rank=workers
    )
    part = part_of(config, listing=listing)
    feed = folder_feed(part, epochs=range(3, 5), augment=_epoch_as_image)
    batches = list(feed.batches)
    # Two steps an epoch of nine images, each of two micro-batches of two images.
    assert [len(labels) for _, labels in batches] == [2] * 8
    assert [int(images.float().mean()) for images, _ in batches] == [3] * 4 + [4] * 4


def _epoch_as_image(image: torch.Tensor, epoch: int, number: int) -> torch.Tensor:
    return torch.full((3, 8, 8), epoch, dtype=torch.uint8)


def test_synthetic_micro_batches_are_the_pieces_of_the_same_global_batch(
    cpu_config: Make, part_of: PartOf
) -> None:
    def step_of_device(accumulate: int, devices: int) -> list[torch.Tensor]:
        config = cpu_config(mode="dp", num_devices=devices, batch_per_device=6, num_classes=10)
        part = part_of(RunConfig(**{**_fields(config), "accumulate": accumulate}))
        pieces = list(islice(open_feed(part).batches, accumulate))
        return [
            torch.cat([images.chunk(devices)[device] for images, _ in pieces])
            for device in range(devices)
        ]

    for once, thrice in zip(step_of_device(1, 2), step_of_device(3, 2), strict=True):
        assert torch.equal(once, thrice)


def _fields(config: RunConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}
