"""Using a checkpoint: evaluating it, predicting with it, and exporting it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.train_config import TrainConfig
from mgpubench.config.train_request import TrainOptions
from mgpubench.errors import RequestRefused
from mgpubench.format import shown_path
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Job, Supervisor, open_supervisor
from mgpubench.results.checkpoint_files import CHECKPOINTS, best_checkpoint, check_is_there
from mgpubench.results.whole_file import check_new_file
from mgpubench.session.prepare import ask_torch
from mgpubench.session.training_images import SEEN_IN_TRAINING, samples_to_evaluate
from mgpubench.session.workers import (
    EVALUATE_RANK,
    EXPORT_SAFETENSORS,
    PREDICT,
    READ_ABOUT,
    RUNNERS,
    TORCH,
    TRAINING_OF_IMAGES,
    listing_file,
)
from mgpubench.training.data.listing import ImageListing, list_images, save_samples

if TYPE_CHECKING:  # it needs torch
    from mgpubench.training.checkpoint import About

MAX_TRIES = 5
"""So often a checkpoint is chosen while a training removes those that were chosen before."""

T = TypeVar("T")


def evaluate_checkpoint(
    checkpoint: Path, request: Request, stop: StopSignal, notify: Callable[[str], None]
) -> dict[str, Any]:
    """Evaluate the model of a checkpoint on an image folder, on the devices of a request.

    Returns the figures under the names of their columns. `notify` gets warnings.

    Raises:
        BenchError: if the checkpoint or the folder cannot be used, or a rank failed.
    """
    check_is_there(checkpoint)
    with stop.raising():
        images = list_images(Path(request.data))
    with open_supervisor(stop, TRAINING_OF_IMAGES) as supervisor:

        def evaluate(path: Path) -> dict[str, Any]:
            about: About = supervisor.call(READ_ABOUT, path)
            if images.digest == about.dataset_digest:
                notify(f"these are the images that {path} was trained on: {SEEN_IN_TRAINING}")
            config = _configure(supervisor, request, images, about, path)
            assert config.eval_listing is not None  # _configure names it
            return _launch(supervisor, config, config.eval_listing)

        return use_checkpoint(supervisor, checkpoint, evaluate)


def _configure(
    supervisor: Supervisor, request: Request, images: ImageListing, about: About, path: Path
) -> TrainConfig:
    samples = samples_to_evaluate(images, about.classes)
    machine, _ = ask_torch(supervisor)
    wanted = replace(request, model=about.model, image_size=about.image_size, rounds=1)
    run = replace(make_plan(wanted, machine).runs[0], num_classes=len(about.classes))
    listing = listing_file(supervisor, run.data)
    save_samples(samples, listing)
    return TrainConfig(
        run=run,
        options=TrainOptions(),
        classes=about.classes,
        num_samples=len(samples),
        dataset_digest=about.dataset_digest,
        checkpoints=path.parent,
        resume_from=path,
        eval_listing=listing,
    )


def _launch(supervisor: Supervisor, config: TrainConfig, listing: Path) -> dict[str, Any]:
    folder = supervisor.make_folder()
    runner = f"{RUNNERS}.{config.run.mode}"
    job = Job(
        target=EVALUATE_RANK,
        calls=[(config, rank, runner, folder, listing) for rank in range(config.run.world_size)],
        folder=folder,
        label=config.run.label,
        watch=lambda elapsed_s: None,
        hide_gpus=config.run.device_type == "cpu",
    )
    figures: dict[str, Any] = supervisor.run(job)[0]
    return figures


def predict_images(checkpoint: Path, images: Sequence[str], stop: StopSignal) -> list[Any]:
    """What the model of a checkpoint says about images.

    Raises:
        BenchError: if the checkpoint or an image cannot be used.
    """
    check_is_there(checkpoint)
    _check_are_there(images)
    with open_supervisor(stop, TRAINING_OF_IMAGES) as supervisor:

        def predict(path: Path) -> list[Any]:
            device = "cuda" if ask_torch(supervisor)[0].gpus else "cpu"
            predictions: list[Any] = supervisor.call(
                PREDICT, path, list(images), device, label="predict", hide_gpus=device == "cpu"
            )
            return predictions

        return use_checkpoint(supervisor, checkpoint, predict)


def _check_are_there(images: Sequence[str]) -> None:
    """Refuse what is not there, or is a folder, before torch is loaded."""
    for image in images:
        if os.path.isdir(image) or not os.path.exists(image):
            fault = "it is a folder" if os.path.isdir(image) else "it does not exist"
            raise RequestRefused(
                f"cannot read image {shown_path(image)}: {fault}", "Give the path of an image."
            )


def export_checkpoint(checkpoint: Path, file: Path, stop: StopSignal) -> None:
    """Write the model of a checkpoint as safetensors.

    Raises:
        BenchError: if the checkpoint cannot be read, or the file cannot be written.
    """
    check_is_there(checkpoint)
    check_new_file(file)
    with open_supervisor(stop, TORCH) as supervisor:

        def export(path: Path) -> None:
            supervisor.call(EXPORT_SAFETENSORS, path, file, label="export", hide_gpus=True)

        use_checkpoint(supervisor, checkpoint, export)


def use_checkpoint(supervisor: Supervisor, path: Path, use: Callable[[Path], T]) -> T:
    """What `use` makes of a checkpoint: of the file itself, or of one in the folder of a training.

    In a folder that is the best checkpoint, or else the last one. A training that still runs may
    remove it before it is read. Then it is chosen again.

    Raises:
        BenchError: if a folder has no checkpoint, or what `use` raises.
    """
    if not path.is_dir():
        return use(path)
    for _ in range(MAX_TRIES):
        try:
            return _reading(find_checkpoint(supervisor, path), use)
        except _Gone:
            continue
    raise RequestRefused(
        f"the training in {path} removes its checkpoints before they can be read",
        "Wait until it has ended, or copy a checkpoint and name the copy.",
    )


class _Gone(Exception):
    """A checkpoint was removed before it was read."""


def _reading(path: Path, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except RequestRefused as error:
        if path.exists():
            raise
        raise _Gone from error


def find_checkpoint(supervisor: Supervisor, path: Path) -> Path:
    """The best checkpoint in the folder of a training, or else the last one.

    Raises:
        RequestRefused: if it has none.
    """
    folder = path / CHECKPOINTS if (path / CHECKPOINTS).is_dir() else path

    def best_epoch(checkpoint: Path) -> int | None:
        about: About = _reading(checkpoint, partial(supervisor.call, READ_ABOUT))
        return about.best.epoch if about.best else None

    found = best_checkpoint(folder, best_epoch)
    if found is None:
        raise RequestRefused(
            f"{path} has no checkpoint", "Name a checkpoint, or the folder of a training."
        )
    return found
