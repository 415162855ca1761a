"""Launching the ranks of a training, and recording what they report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from mgpubench.config.machine_facts import Machine, fingerprint_of
from mgpubench.config.nodes import Nodes
from mgpubench.config.train_config import TrainConfig
from mgpubench.errors import BenchError, Interrupted, RunFailed, SessionEnded
from mgpubench.format import shell_path
from mgpubench.launch.events import EVENTS_FILE, EventReader
from mgpubench.launch.loss_lines import LossLine, LossReader, loss_not_finite, rank_sources
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
from mgpubench.session.hello import Asked
from mgpubench.session.nodes import Alone
from mgpubench.session.recorder import device_names
from mgpubench.session.telemetry import (
    NO_TELEMETRY,
    Latest,
    Sampling,
    Telemetry,
    lost_gpu,
)
from mgpubench.session.workers import training_job
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
    nodes: Nodes | None = None
    """The machines of the training, if there are several."""
    asked: Asked = field(default_factory=Asked)
    """What this machine says about the command line to the others."""
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
    nodes: Alone
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
        job = training_job(config, self.supervisor)
        ranks = rank_sources(job.folder, config.run.ranks_of_node(0))
        watch = _Watch(self, config, job.folder, LossReader([*ranks, *self.nodes.loss_sources()]))
        try:
            self._run(job, watch)
        except BenchError as error:
            has_one = latest_checkpoint(config.checkpoints) is not None
            how = "go on from the last checkpoint" if has_one else "begin again"
            again = f"mgpubench train --resume {shell_path(self.session.folder)}"
            self.call.display.notice(f"{how} with: {again}")
            if isinstance(error, Interrupted | SessionEnded):
                raise
            # Whatever its ranks say about a GPU that was lost.
            self.telemetry.end_run()
            if lost := self.lost_gpu(config):
                raise lost from error
            raise
        return Trained(self.session.folder, watch.epochs)

    def _run(self, job: Job, watch: _Watch) -> None:
        launcher = self.nodes.launcher(self.supervisor)
        try:
            launcher.run(replace(job, watch=watch, finish=watch.collect))
            self.nodes.await_losses()
        finally:
            watch.finish()

    def lost_gpu(self, config: TrainConfig) -> RunFailed | None:
        """The error of a training that has lost a GPU; None if it has not."""
        return lost_gpu(config.run, self.machine, self.telemetry.latest())

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
            device_names=device_names(config.run, self._machines),
            machine=fingerprint_of(self._machines),
            num_nodes=config.run.num_nodes,
            loader_workers=config.run.total_workers,
            torch_version=self.machine.torch_version,
            **event,
        )

    @property
    def _machines(self) -> list[Machine]:
        return [self.machine, *(other.machine for other in self.nodes.devices)]


class _Watch:
    """What the parent does while the ranks train: records, shows, and ends what hangs."""

    def __init__(
        self, trainer: Trainer, config: TrainConfig, folder: Path, losses: LossReader
    ) -> None:
        self.epochs: list[EpochRecord] = []
        self._trainer = trainer
        self._config = config
        self._folder = folder
        self._events = EventReader(folder / EVENTS_FILE)
        self._losses = losses
        self._epoch: dict[str, Any] = {}
        """What rank 0 has reported about an epoch whose checkpoint is being written."""
        self._whole: list[dict[str, Any]] = []
        """What it has reported about epochs that have no row yet."""
        self._lines: list[LossLine] = []
        """Lines of loss that have no row yet."""
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
        self.collect()
        ready = [event for event in self._whole if self._has_losses(event["epoch"])]
        self._whole = self._whole[len(ready) :]
        self._record(ready)

    def collect(self) -> None:
        """Read what the ranks of this machine have left, before it is removed."""
        self._whole += self._whole_epochs()
        self._lines += self._losses.new_lines()

    def finish(self) -> None:
        """Record what is left, and the last epoch even if its checkpoint was not finished."""
        self.collect()
        left = [*self._whole, *([self._epoch] if self._epoch else [])]
        self._whole, self._epoch = [], {}
        self._record(left)

    def _has_losses(self, epoch: int) -> bool:
        """False if the lines of another machine are still on their way. An epoch ends with one."""
        if self._config.run.num_nodes == 1:
            return True
        epochs = epoch - self._trainer.first_epoch
        return self._losses.last_step >= epochs * self._config.steps_per_epoch

    def _whole_epochs(self) -> Iterator[dict[str, Any]]:
        for event in self._events.new_events():
            self._epoch |= event
            if "checkpoint_save_s" in event or not self._config.saves(self._epoch["epoch"]):
                yield self._epoch
                self._epoch = {}

    def _record(self, events: Sequence[dict[str, Any]]) -> None:
        """Write and show what there is. What cannot be written is shown all the same."""
        losses = [self._loss_record(line) for line in self._lines]
        self._lines = []
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
