"""What a trained model says about images: the likeliest classes by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mgpubench.config.types import DeviceType
from mgpubench.errors import RequestRefused
from mgpubench.training.checkpoint import Content, load
from mgpubench.training.models.by_name import make_module
from mgpubench.training.trainable import TrainableModel
from mgpubench.training.weights import load_into

MOST_CLASSES = 5


@dataclass(frozen=True, slots=True)
class Guess:
    """A class, and how likely the model finds it."""

    name: str
    probability: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """The likeliest classes of an image, most likely first."""

    image: str
    guesses: tuple[Guess, ...]


def predict(checkpoint: Path, images: Sequence[str], device_type: DeviceType) -> list[Prediction]:
    """Classify images with the model of a checkpoint.

    Raises:
        RequestRefused: if the checkpoint cannot be used, or an image cannot be read.
    """
    content = load(checkpoint)
    model = trained_model(content).to(device_type).eval()
    return [_predict_one(model, content, image, device_type) for image in images]


def trained_model(content: Content) -> TrainableModel:
    """The model of a checkpoint, with its weights, on the CPU."""
    module = make_module(content.about.model, len(content.about.classes))
    load_into(module, content.model)
    return TrainableModel(module, "fp32")


def _predict_one(
    model: TrainableModel, content: Content, image: str, device_type: DeviceType
) -> Prediction:
    # Here and not above: it loads torchvision.
    from mgpubench.training.data.decode import UnreadableImage, decode_rgb, resize_and_crop

    try:
        pixels = resize_and_crop(decode_rgb(image), content.about.image_size)
    except UnreadableImage as error:
        raise RequestRefused(str(error), "Give the path of an image.") from error
    with torch.no_grad():
        logits = model(pixels.unsqueeze(0).to(device_type))[0][0]
    names = content.about.classes
    likeliest = logits[: len(names)].softmax(dim=0).topk(min(MOST_CLASSES, len(names)))
    guesses = zip(likeliest.values.tolist(), likeliest.indices.tolist(), strict=True)
    return Prediction(image, tuple(Guess(names[number], share) for share, number in guesses))
