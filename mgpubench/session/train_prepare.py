"""What is done before a training starts: its images, its checkpoint, its plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mgpubench.config.configure import Draft
from mgpubench.config.device_choice import choose_device
from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import Plan, make_plan
from mgpubench.config.train_config import TrainConfig
from mgpubench.config.train_request import TrainRequest
from mgpubench.config.types import Mode
from mgpubench.errors import RequestRefused
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor
from mgpubench.machine.system import Survey
from mgpubench.results.checkpoint_files import CHECKPOINTS, check_room, expected_bytes
from mgpubench.results.schema import ModelFacts
from mgpubench.session.document import dataset_part
from mgpubench.session.prepare import ask_torch, preflight, take_survey
from mgpubench.session.trainer import TrainDisplay
from mgpubench.session.workers import (
    CHECK_PRETRAINED,
    listing_file,
)
from mgpubench.training.data.listing import ImageListing, list_images, save_samples
from mgpubench.training.data.split import split_samples

if TYPE_CHECKING:  # it needs torch
    from mgpubench.training.checkpoint import About


def list_training_images(request: TrainRequest, stop: StopSignal) -> ImageListing:
    """The images to train on. A signal ends it at once, since there is nothing to lose yet."""
    with stop.raising():
        return list_images(Path(request.work.data))


def like_checkpoint(
    request: TrainRequest, path: Path, about: About, listing: ImageListing
) -> TrainRequest:
    """A request with the model of a checkpoint.

    Raises:
        RequestRefused: if the request, or the images, do not fit the checkpoint.
    """
    for what, wanted, its in (
        ("--model is", request.work.model, about.model),
        ("the classes are", listing.classes, about.classes),
    ):
        if wanted is not None and wanted != its:
            raise RequestRefused(f"{what} {_shown(wanted)}, and {path} has {_shown(its)}")
    if about.epoch >= request.options.epochs:
        raise RequestRefused(
            f"{path} has {about.epoch} epochs behind it, and --epochs is {request.options.epochs}",
            "Raise --epochs.",
        )
    size = request.work.image_size or about.image_size
    return replace(request, work=replace(request.work, model=about.model, image_size=size))


def _shown(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else ", ".join(value[:MAX_NAMES])


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known before a training starts."""

    supervisor: Supervisor
    plan: Plan
    machine: Machine
    survey: Survey
    facts: ModelFacts

    def check_weights(self, request: TrainRequest, display: TrainDisplay) -> None:
        """Refuse weights to begin with that do not fit the model, and say what stays random.

        Raises:
            BenchError: if they do not fit, or cannot be found.
        """
        run, file = self.plan.runs[0], request.options.pretrained_file
        for notice in self.supervisor.call(CHECK_PRETRAINED, run.model, run.num_classes, file):
            display.notice(notice)

    def trained_part(self, listing: ImageListing) -> dict[str, object]:
        """The part of session.json that must be the same when a training is resumed."""
        models = {self.plan.runs[0].model: asdict(self.facts)}
        return {"datasets": [dataset_part(listing)], "models": models}

    def config(
        self, request: TrainRequest, listing: ImageListing, folder: Path, start: Path | None
    ) -> TrainConfig:
        """The configuration, once its samples are written and there is room for checkpoints.

        Raises:
            RequestRefused: if the training cannot be done.
        """
        config = TrainConfig(
            run=self.plan.runs[0],
            options=request.options,
            classes=listing.classes,
            num_samples=len(listing.samples),
            dataset_digest=listing.digest,
            checkpoints=folder / CHECKPOINTS,
            resume_from=start,
        )
        optimizer = config.run.optimizer
        check_room(config.checkpoints, expected_bytes(self.facts.parameter_bytes, optimizer))
        return save_training_listings(self.supervisor, config, listing)


def prepare_training(
    supervisor: Supervisor, request: TrainRequest, listing: ImageListing, display: TrainDisplay
) -> Prepared:
    """Look at the machine, plan the training, and check its model and images.

    Raises:
        BenchError: if the training cannot be done.
    """
    machine, build = ask_torch(supervisor)
    plan = plan_training(request, machine, listing)
    for notice in (*plan.notices, *listing.warnings, *_evaluates_training_images(request)):
        display.notice(notice)
    facts = preflight(supervisor, plan, {request.work.data: listing})[plan.runs[0].model]
    return Prepared(supervisor, plan, machine, take_survey(machine, build), facts)


def _evaluates_training_images(request: TrainRequest) -> Iterator[str]:
    eval_data = request.options.eval_data
    if eval_data and Path(eval_data).resolve() == Path(request.work.data).resolve():
        yield f"--eval-data is the folder of --data: {SEEN_IN_TRAINING}"


def plan_training(request: TrainRequest, machine: Machine, listing: ImageListing) -> Plan:
    """The one run of a training, with the mode that was asked for or the default one."""
    work = replace(request.work, modes=(choose_mode(request, machine),), rounds=1)
    return make_plan(work, machine, {work.data: len(listing.classes)})


def choose_mode(request: TrainRequest, machine: Machine) -> Mode:
    """The mode that was asked for; else ddp on two or more devices, and single on one."""
    if request.work.modes is not None:
        return request.work.modes[0]
    device_type = choose_device(request.work, machine)
    count = Draft(request.work, machine, device_type, 0).counts[0]
    return "ddp" if count > 1 else "single"


def save_training_listings(
    supervisor: Supervisor, config: TrainConfig, listing: ImageListing
) -> TrainConfig:
    """Write the samples to train on, and those to evaluate on; the configuration that names them.

    Raises:
        RequestRefused: if the folder to evaluate on has other classes, or the split leaves a class
            without images.
    """
    options = config.options
    training: Sequence[tuple[str, int]] = listing.samples
    evaluation: Sequence[tuple[str, int]] = ()
    if options.split is not None:
        training, evaluation = split_samples(
            listing.samples, listing.classes, options.split, config.run.seed
        )
    elif options.eval_data:
        evaluation = samples_to_evaluate(list_images(Path(options.eval_data)), config.classes)
    save_samples(training, listing_file(supervisor, config.run.data))
    eval_listing = None
    if evaluation:
        eval_listing = listing_file(supervisor, f"evaluation of {config.run.data}")
        save_samples(evaluation, eval_listing)
    return replace(config, num_samples=len(training), eval_listing=eval_listing)


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


SEEN_IN_TRAINING = "the accuracy is that on images seen in training, and not on new ones"

MAX_NAMES = 5
"""So many class names are shown in an error."""
