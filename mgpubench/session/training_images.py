"""The images of a training: those to train on, and those to evaluate on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpubench.config.train_request import TrainRequest
from mgpubench.errors import RequestRefused
from mgpubench.launch.signals import StopSignal
from mgpubench.session.document import dataset_part
from mgpubench.training.data.listing import ImageListing, list_images
from mgpubench.training.data.split import split_samples

Samples = Sequence[tuple[str, int]]
"""Path and class number of images."""

SEEN_IN_TRAINING = "the accuracy is that on images seen in training, and not on new ones"

MAX_NAMES = 5
"""So many class names are shown in an error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingImages:
    """What is trained on and what is evaluated on, by the class numbers of the training."""

    listing: ImageListing
    """The folder of --data."""
    eval_listing: ImageListing | None
    """The folder of --eval-data; None without one."""
    training: Samples
    evaluation: Samples
    """Empty if nothing is evaluated."""

    @property
    def warnings(self) -> Iterator[str]:
        """What a person should know about the folders."""
        yield from self.listing.warnings
        if self.eval_listing is not None and self.eval_listing.digest == self.listing.digest:
            yield f"--eval-data has the images of --data: {SEEN_IN_TRAINING}"

    def document_part(self) -> dict[str, object]:
        """The part of session.json that tells these images from others."""
        evaluation = self.eval_listing and dataset_part(self.eval_listing)
        return {"datasets": [dataset_part(self.listing)], "evaluation": evaluation}


def find_images(request: TrainRequest, stop: StopSignal) -> TrainingImages:
    """List the images of a training. A signal ends it at once: there is nothing to lose yet.

    Raises:
        RequestRefused: if a folder cannot be used, the folder to evaluate on has other classes, or
            the split leaves a class without images.
    """
    options = request.options
    eval_listing = None
    with stop.raising():
        listing = list_images(Path(request.work.data))
        if options.eval_data:
            eval_listing = list_images(Path(options.eval_data), "--eval-data")
    training: Samples = listing.samples
    evaluation: Samples = ()
    if options.split is not None:
        seed = request.work.seed or 0
        training, evaluation = split_samples(training, listing.classes, options.split, seed)
    elif eval_listing is not None:
        evaluation = samples_to_evaluate(eval_listing, listing.classes)
    return TrainingImages(
        listing=listing, eval_listing=eval_listing, training=training, evaluation=evaluation
    )


def samples_to_evaluate(listing: ImageListing, classes: Sequence[str]) -> list[tuple[str, int]]:
    """The images of a folder, numbered by the classes of the training.

    Raises:
        RequestRefused: if the folder has a class that the training does not know.
    """
    unknown = [name for name in listing.classes if name not in classes]
    if unknown:
        raise RequestRefused(
            f"{listing.root} has classes that the training does not have: "
            f"{', '.join(unknown[:MAX_NAMES])}",
            f"The training has {', '.join(classes[:MAX_NAMES])}.",
        )
    numbers = [classes.index(name) for name in listing.classes]
    return [(path, numbers[label]) for path, label in listing.samples]
