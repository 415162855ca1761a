"""Using a checkpoint: evaluating it, predicting with it, and exporting it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.train_config import TrainConfig
from mgpubench.config.train_request import TrainOptions
from mgpubench.errors import RequestRefused
from mgpubench.format import shown_path
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Job, Supervisor, open_supervisor
from mgpubench.results.checkpoint_files import CHECKPOINTS, best_checkpoint
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
from mgpubench.training.data.listing import list_images, save_samples


def evaluate_checkpoint(
    checkpoint: Path, request: Request, stop: StopSignal, notify: Callable[[str], None]
) -> dict[str, Any]:
    """Evaluate the model of a checkpoint on an image folder, on the devices of a request.

    Returns the figures under the names of their columns. `notify` gets warnings.

    Raises:
        BenchError: if the checkpoint or the folder cannot be used, or a rank failed.
    """
    with open_supervisor(stop, TRAINING_OF_IMAGES) as supervisor:
        path = find_checkpoint(supervisor, checkpoint)
        about = supervisor.call(READ_ABOUT, path)
        images = list_images(Path(request.data))
        samples = samples_to_evaluate(images, about.classes)
        if images.digest == about.dataset_digest:
            notify(f"these are the images that {path} was trained on: {SEEN_IN_TRAINING}")
        machine, _ = ask_torch(supervisor)
        wanted = replace(request, model=about.model, image_size=about.image_size, rounds=1)
        run = replace(make_plan(wanted, machine).runs[0], num_classes=len(about.classes))
        listing = listing_file(supervisor, run.data)
        save_samples(samples, listing)
        config = TrainConfig(
            run=run,
            options=TrainOptions(),
            classes=about.classes,
            num_samples=len(samples),
            dataset_digest=about.dataset_digest,
            checkpoints=path.parent,
            resume_from=path,
            eval_listing=listing,
        )
        return _launch(supervisor, config, listing)


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
    _check_are_there(images)
    with open_supervisor(stop, TRAINING_OF_IMAGES) as supervisor:
        machine, _ = ask_torch(supervisor)
        device = "cuda" if machine.gpus else "cpu"
        path = find_checkpoint(supervisor, checkpoint)
        predictions: list[Any] = supervisor.call(
            PREDICT, path, list(images), device, label="predict", hide_gpus=device == "cpu"
        )
        return predictions


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
    with open_supervisor(stop, TORCH) as supervisor:
        path = find_checkpoint(supervisor, checkpoint)
        supervisor.call(EXPORT_SAFETENSORS, path, file, label="export", hide_gpus=True)


def find_checkpoint(supervisor: Supervisor, path: Path) -> Path:
    """The file itself; in the folder of a training the best checkpoint, or else the last one.

    Raises:
        RequestRefused: if a folder has no checkpoint.
    """
    if not path.is_dir():
        return path
    folder = path / CHECKPOINTS if (path / CHECKPOINTS).is_dir() else path

    def best_epoch(checkpoint: Path) -> int | None:
        best = supervisor.call(READ_ABOUT, checkpoint).best
        return best.epoch if best else None

    found = best_checkpoint(folder, best_epoch)
    if found is None:
        raise RequestRefused(
            f"{path} has no checkpoint", "Name a checkpoint, or the folder of a training."
        )
    return found
