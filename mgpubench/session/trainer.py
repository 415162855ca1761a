"""Launching the ranks of a training, and recording what they report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from mgpubench.config.machine_facts import Machine
from mgpubench.config.train_config import TrainConfig
from mgpubench.errors import BenchError, Interrupted, RunFailed, SessionEnded
from mgpubench.format import shell_path
from mgpubench.launch.cause import find_cause
from mgpubench.launch.events import EVENTS_FILE, EventReader
from mgpubench.launch.loss_lines import LossLine, LossReader, loss_not_finite
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.step_count import STEP_COUNT_FILE, StepCount, read_step_count
from mgpubench.launch.supervisor import Job, Supervisor
from mgpubench.results.checkpoint_files import latest_checkpoint
from mgpubench.results.schema import SCHEMA_VERSION
from mgpubench.results.session_folder import Session
from mgpubench.results.training import (
    EPOCHS_CSV,
    LOSSES_CSV,
    EpochRecord,
    LossRecord,
)
from mgpubench.session.recorder import device_names
from mgpubench.session.telemetry import (
    NO_TELEMETRY,
    Latest,
    Sampling,
    Telemetry,
    lost_gpu,
)
from mgpubench.session.workers import (
    RUNNERS,
    TRAIN_RANK,
    listing_file,
)
from mgpubench.training.schedule import learning_rate


class TrainDisplay(Protocol):
    """What a person sees while a training runs."""

    def notice(self, text: str) -> None:
        """Show something that matters."""

    def begin(self, config: TrainConfig, first_epoch: int) -> None:
        """The training starts, with this epoch."""

    def on_steps(self, steps: int, pace_s: float | None) -> None:
        """So many steps are done in this call, at so many seconds each."""

    def on_devices(self, latest: Latest) -> None:
        """The last sample of each device."""

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
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished training."""

    folder: Path
    epochs: list[EpochRecord]


@dataclass(frozen=True, slots=True)
class Trainer:
    """Launches the ranks of a training, and records what they report."""

    supervisor: Supervisor
    session: Session
    call: TrainCall
    machine: Machine
    sitting: int = 1
    first_epoch: int = 0
    """Epochs that are behind the training already."""
    telemetry: Telemetry = NO_TELEMETRY

    def train(self, config: TrainConfig) -> Trained:
        """Train to the last epoch.

        Raises:
            BenchError: if a rank failed, or nothing happened for too long; Interrupted after a
                signal.
        """
        self.call.display.begin(config, self.first_epoch)
        self.telemetry.begin_run(self.session.id)
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
            finish=watch.finish,
            hide_gpus=config.run.device_type == "cpu",
            explain=partial(find_cause, sizes=config.run.sizes),
        )
        try:
            self._run(job, config)
        except BenchError:
            has_one = latest_checkpoint(config.checkpoints) is not None
            how = "go on from the last checkpoint" if has_one else "begin again"
            again = f"mgpubench train --resume {shell_path(self.session.folder)}"
            self.call.display.notice(f"{how} with: {again}")
            raise
        return Trained(self.session.folder, watch.epochs)

    def _run(self, job: Job, config: TrainConfig) -> None:
        """Run the job to its end. A GPU that was lost is named, whatever its ranks say."""
        try:
            self.supervisor.run(job)
        except (Interrupted, SessionEnded):
            raise
        except BenchError as error:
            self.telemetry.end_run()
            raise self.lost_gpu(config) or error from error

    def lost_gpu(self, config: TrainConfig) -> RunFailed | None:
        """The error of a training that has lost a GPU; None if it has not."""
        return lost_gpu(config.run, self.machine, self.telemetry.latest())

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
            device_type=config.run.device_type,
            device_names=device_names(config.run, [self.machine]),
            machine=self.machine.fingerprint,
            loader_workers=config.run.total_workers,
            torch_version=self.machine.torch_version,
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
        self._epoch: dict[str, Any] = {}
        """What rank 0 has reported about an epoch whose checkpoint is being written."""
        self._diverged: RunFailed | None = None
        self._last = (0, 0.0)
        """The progress that was seen last, and when it began."""

    def __call__(self, elapsed_s: float) -> None:
        count = read_step_count(self._folder / STEP_COUNT_FILE)
        self._trainer.call.display.on_steps(count.steps, count.seconds_per_step)
        if latest := self._trainer.telemetry.latest():
            self._trainer.call.display.on_devices(latest)
        self.record_events()
        if error := self._diverged or self._trainer.lost_gpu(self._config):
            raise error
        self._check_progress(count, elapsed_s)

    def record_events(self) -> None:
        """Write a row for each line of loss, and for each epoch that has been reported."""
        self._record(list(self._whole_epochs()))

    def finish(self) -> None:
        """Record what is left, and the last epoch even if its checkpoint was not finished."""
        self._record([*self._whole_epochs(), *([self._epoch] if self._epoch else [])])

    def _whole_epochs(self) -> Iterator[dict[str, Any]]:
        for event in self._events.new_events():
            self._epoch |= event
            if "checkpoint_save_s" in event or not self._config.saves(self._epoch["epoch"]):
                yield self._epoch
                self._epoch = {}

    def _record(self, events: Sequence[dict[str, Any]]) -> None:
        """Write and show what there is. What cannot be written is shown all the same."""
        losses = [self._loss_record(line) for line in self._losses.new_lines()]
        epochs = [self._trainer.record_of(self._config, event) for event in events]
        display, session = self._trainer.call.display, self._trainer.session
        try:
            session.append_to(LOSSES_CSV, losses)
            session.append_to(EPOCHS_CSV, epochs)
        except BenchError:
            display.notice("what follows could not be saved, and is in no file")
            raise
        finally:
            for record in epochs:
                self.epochs.append(record)
                losses = self._show(losses, record.epoch)
                display.on_epoch(record)
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
        is_finite = math.isfinite(line.loss)
        # The GradScaler of amp-fp16 leaves out the steps in which it is not.
        if not is_finite and config.run.precision != "amp-fp16":
            self._diverged = loss_not_finite(epoch + 1, line.loss)
        return LossRecord(
            schema_version=SCHEMA_VERSION,
            epoch=epoch + 1,
            step=step + 1,
            samples=line.samples,
            loss=line.loss if is_finite else None,
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
