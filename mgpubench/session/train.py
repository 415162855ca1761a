"""One call of `mgpubench train`: from a request to epochs on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mgpubench.config.configure import Draft
from mgpubench.config.device_choice import choose_device
from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import Plan, make_plan
from mgpubench.config.train_config import TrainConfig
from mgpubench.config.train_request import TrainRequest
from mgpubench.config.types import Mode
from mgpubench.errors import BenchError, RequestRefused, RunFailed
from mgpubench.format import shell_path
from mgpubench.launch.events import EVENTS_FILE, EventReader
from mgpubench.launch.loss_lines import LossLine, LossReader
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.step_count import STEP_COUNT_FILE, StepCount, read_step_count
from mgpubench.launch.supervisor import Job, Supervisor, open_supervisor
from mgpubench.machine.system import Survey
from mgpubench.results.checkpoint_files import CHECKPOINTS, check_room, expected_bytes
from mgpubench.results.schema import SCHEMA_VERSION, ModelFacts
from mgpubench.results.session_folder import Session, check_writable, open_session
from mgpubench.results.training import (
    EPOCHS_CSV,
    LOSSES_CSV,
    TRAINING_FILES,
    EpochRecord,
    LossRecord,
)
from mgpubench.session.document import called_part, dataset_part, installed_part
from mgpubench.session.prepare import ask_torch, preflight, take_survey
from mgpubench.session.workers import (
    CHECK_PRETRAINED,
    READ_ABOUT,
    RUNNERS,
    TRAIN_RANK,
    TRAINING_OF_IMAGES,
    listing_file,
)
from mgpubench.training.data.listing import ImageListing, list_images, save_samples
from mgpubench.training.data.split import split_samples
from mgpubench.training.schedule import learning_rate

if TYPE_CHECKING:  # it needs torch
    from mgpubench.training.checkpoint import About


class TrainDisplay(Protocol):
    """What a person sees while a training runs."""

    def notice(self, text: str) -> None:
        """Show something that matters."""

    def begin(self, config: TrainConfig, first_epoch: int) -> None:
        """The training starts, with this epoch."""

    def on_steps(self, steps: int, pace_s: float | None) -> None:
        """So many steps are done in this call, at so many seconds each."""

    def on_loss(self, record: LossRecord) -> None:
        """There is a line of loss."""

    def on_epoch(self, record: EpochRecord) -> None:
        """An epoch is done."""


@dataclass(frozen=True, slots=True)
class TrainCall:
    """What a training gets from the command line besides the request."""

    argv: Sequence[str]
    display: TrainDisplay
    stop: StopSignal


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished training."""

    folder: Path
    epochs: list[EpochRecord]


def train_session(
    request: TrainRequest, call: TrainCall, checkpoint: Path | None = None
) -> Trained:
    """Train all epochs in a new folder, and record each one at once.

    With a checkpoint, the epochs up to its own are behind the training already.

    Raises:
        BenchError: if it could not be started, or a rank failed; Interrupted after a signal.
    """
    check_writable(Path(request.work.out))
    listing = list_training_images(request, call.stop)
    with open_supervisor(call.stop, TRAINING_OF_IMAGES) as supervisor:
        first_epoch = 0
        if checkpoint is not None:
            about: About = supervisor.call(READ_ABOUT, checkpoint)
            request, first_epoch = like_checkpoint(request, checkpoint, about, listing), about.epoch
        prepared = prepare_training(supervisor, request, listing, call.display)
        if request.options.pretrained is not None and checkpoint is None:
            prepared.check_weights(request, call.display)
        document = {
            **called_part(request.work, prepared.plan, call.argv),
            "options": asdict(request.options),
            "classes": list(listing.classes),
            "resumed_from": str(checkpoint) if checkpoint else None,
            "system": asdict(prepared.survey.system),
            **installed_part(prepared.survey),
            **prepared.trained_part(listing),
        }
        now = datetime.now(UTC)
        with open_session(Path(request.work.out), document, now, TRAINING_FILES) as session:
            trainer = Trainer(supervisor, session, call, first_epoch=first_epoch)
            return trainer.train(prepared.config(request, listing, session.folder, checkpoint))


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
    for notice in (*plan.notices, *listing.warnings):
        display.notice(notice)
    facts = preflight(supervisor, plan, {request.work.data: listing})[plan.runs[0].model]
    return Prepared(supervisor, plan, take_survey(machine, build), facts)


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
        evaluation = samples_to_evaluate(Path(options.eval_data), config.classes)
    save_samples(training, listing_file(supervisor, config.run.data))
    eval_listing = None
    if evaluation:
        eval_listing = listing_file(supervisor, f"evaluation of {config.run.data}")
        save_samples(evaluation, eval_listing)
    return replace(config, num_samples=len(training), eval_listing=eval_listing)


@dataclass(frozen=True, slots=True)
class Trainer:
    """Launches the ranks of a training, and records what they report."""

    supervisor: Supervisor
    session: Session
    call: TrainCall
    sitting: int = 1
    first_epoch: int = 0
    """Epochs that are behind the training already."""

    def train(self, config: TrainConfig) -> Trained:
        """Train to the last epoch.

        Raises:
            BenchError: if a rank failed, or nothing happened for too long; Interrupted after a
                signal.
        """
        self.call.display.begin(config, self.first_epoch)
        folder = self.supervisor.make_folder()
        watch = _Watch(self, config, folder)
        job = Job(
            target=TRAIN_RANK,
            calls=[
                (config, rank, f"{RUNNERS}.{config.run.mode}", folder, self._listing(config))
                for rank in range(config.run.world_size)
            ],
            folder=folder,
            label=config.run.label,
            watch=watch,
            finish=watch.record_events,
            hide_gpus=config.run.device_type == "cpu",
        )
        try:
            self.supervisor.run(job)
        except BenchError:
            again = f"mgpubench train --resume {shell_path(self.session.folder)}"
            self.call.display.notice(f"go on from the last checkpoint with: {again}")
            raise
        return Trained(self.session.folder, watch.epochs)

    def _listing(self, config: TrainConfig) -> Path:
        return listing_file(self.supervisor, config.run.data)

    def record_of(self, config: TrainConfig, event: dict[str, Any]) -> EpochRecord:
        """The row of an epoch that rank 0 has reported."""
        return EpochRecord(
            schema_version=SCHEMA_VERSION,
            session_id=self.session.id,
            mode=config.run.mode,
            effective_mode=config.run.effective_mode,
            num_devices=config.run.num_devices,
            global_batch=config.run.global_batch,
            sitting=self.sitting,
            **event,
        )


class _Watch:
    """What the parent does while the ranks train: records, shows, and ends what hangs."""

    def __init__(self, trainer: Trainer, config: TrainConfig, folder: Path) -> None:
        self.epochs: list[EpochRecord] = []
        self._trainer = trainer
        self._config = config
        self._folder = folder
        self._events = EventReader(folder / EVENTS_FILE)
        self._losses = LossReader(folder, config.run.world_size)
        self._last = (0, 0.0)
        """The progress that was seen last, and when it began."""

    def __call__(self, elapsed_s: float) -> None:
        count = read_step_count(self._folder / STEP_COUNT_FILE)
        self._trainer.call.display.on_steps(count.steps, count.seconds_per_step)
        self.record_events()
        self._check_progress(count, elapsed_s)

    def record_events(self) -> None:
        """Write a row for each line of loss, and for each epoch that has been reported."""
        losses = [self._loss_record(line) for line in self._losses.new_lines()]
        self._trainer.session.append_to(LOSSES_CSV, losses)
        for event in self._events.new_events():
            record = self._trainer.record_of(self._config, event)
            self._trainer.session.append_to(EPOCHS_CSV, [record])
            self.epochs.append(record)
            losses = self._show(losses, record.epoch)
            self._trainer.call.display.on_epoch(record)
        self._show(losses, self._config.options.epochs)

    def _show(self, losses: list[LossRecord], epoch: int) -> list[LossRecord]:
        """Show the lines of loss up to an epoch. Returns the others."""
        for loss in losses:
            if loss.epoch <= epoch:
                self._trainer.call.display.on_loss(loss)
        return [loss for loss in losses if loss.epoch > epoch]

    def _loss_record(self, line: LossLine) -> LossRecord:
        config = self._config
        epoch, step = divmod(line.step - 1, config.steps_per_epoch)
        epoch += self._trainer.first_epoch
        return LossRecord(
            schema_version=SCHEMA_VERSION,
            epoch=epoch + 1,
            step=step + 1,
            samples=line.samples,
            loss=line.loss,
            lr=learning_rate(config.options, epoch, step, config.steps_per_epoch),
            sitting=self._trainer.sitting,
        )

    def _check_progress(self, count: StepCount, elapsed_s: float) -> None:
        if count.last_step_ns != self._last[0]:
            self._last = (count.last_step_ns, elapsed_s)
        timeout_s = self._config.run.timeout_s
        if elapsed_s - self._last[1] > timeout_s:
            raise RunFailed(
                f"{self._config.run.label}: no step, evaluation batch or checkpoint within "
                f"--timeout {timeout_s:g} s, after {count.steps} steps",
                "Raise --timeout, or look for a rank that hangs.",
            )


def samples_to_evaluate(folder: Path, classes: Sequence[str]) -> list[tuple[str, int]]:
    """The images of a folder, numbered by the classes of the training.

    Raises:
        RequestRefused: if the folder has a class that the training does not know.
    """
    listing = list_images(folder)
    unknown = [name for name in listing.classes if name not in classes]
    if unknown:
        raise RequestRefused(
            f"--eval-data {folder} has classes that the training does not have: "
            f"{', '.join(unknown[:MAX_NAMES])}",
            f"The training has {', '.join(classes[:MAX_NAMES])}.",
        )
    numbers = [classes.index(name) for name in listing.classes]
    return [(path, numbers[label]) for path, label in listing.samples]


MAX_NAMES = 5
"""So many class names are shown in an error."""
