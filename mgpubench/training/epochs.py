"""Training epoch after epoch: the steps, evaluation and checkpoints of one rank."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from mgpubench.analysis.metrics import throughput_samples_per_s
from mgpubench.config.train_config import TrainConfig
from mgpubench.launch.events import EventWriter
from mgpubench.launch.loss_lines import loss_not_finite
from mgpubench.training.checkpoint import About, Best, Content, load
from mgpubench.training.checkpoint_folder import Checkpoints
from mgpubench.training.clock import NoClock
from mgpubench.training.data.batch import Batch, Feed
from mgpubench.training.data.loader import folder_feed
from mgpubench.training.devices import Part
from mgpubench.training.evaluation import evaluate, evaluation_batches
from mgpubench.training.loop import Steps, Trace
from mgpubench.training.loss_log import LossLog
from mgpubench.training.optimizer_state import optimizer_by_name
from mgpubench.training.schedule import learning_rate
from mgpubench.training.start import begin
from mgpubench.training.step import TrainStep
from mgpubench.training.technique import Wrapped
from mgpubench.training.weights import load_into

Event = dict[str, Any]


def train_epochs(part: Part, wrapped: Wrapped, config: TrainConfig, events: EventWriter) -> int:
    """Train from the checkpoint, or from the beginning, to the last epoch.

    Returns the epochs that were trained.
    """
    step = TrainStep(wrapped, part, config.options.recipe(config.run.optimizer))
    start = begin(part, config, wrapped, step)
    best, load_s = start.best, start.load_s
    epochs = range(start.epochs, config.options.epochs)
    feed = folder_feed(part, epochs=epochs, augment=_augmentation(config))
    training = _Training(part, wrapped, config, step, feed, LossLog(part))
    for epoch in epochs:
        event: Event = {"checkpoint_load_s": load_s, **training.train_epoch(epoch)}
        if config.evaluates(epoch + 1):
            event |= training.evaluate()
        load_s = None
        # First: a training that ends while the checkpoint is written has a row of the epoch.
        _report(part, events, event)
        if config.saves(epoch + 1):
            best = _better(best, event.get("top1"), epoch + 1)
            _report(part, events, {"checkpoint_save_s": training.save(epoch + 1, best)})
    return len(epochs)


def _better(best: Best | None, top1: float | None, epoch: int) -> Best | None:
    """The better one of two epochs with a checkpoint. The accuracy of this one may be unknown."""
    if top1 is None or (best is not None and top1 <= best.top1):
        return best
    return Best(top1=top1, epoch=epoch)


def _report(part: Part, events: EventWriter, event: Event) -> None:
    if part.rank == 0:
        events.write(event)


@dataclass(frozen=True, slots=True)
class _Training:
    """One rank's part of a training."""

    part: Part
    wrapped: Wrapped
    config: TrainConfig
    step: TrainStep
    feed: Feed
    log: LossLog

    def train_epoch(self, epoch: int) -> Event:
        """Make the steps of an epoch, counted from 0. Returns what rank 0 reports about them.

        Raises:
            RunFailed: if the loss is not finite.
        """
        part, steps = self.part, self.config.steps_per_epoch
        _seed(self.config.run.seed, epoch, part.rank)
        total = _Total(part.device)
        skipped_before = len(self.step.skipped)
        run = Steps(
            self._scheduled(epoch, total), self.feed.batches, part.on_step, Trace(), self.log
        )
        part.synchronize()
        self.wrapped.barrier()
        began_s = time.perf_counter()
        run.repeat(steps, NoClock())
        part.synchronize()
        train_s = time.perf_counter() - began_s
        self.log.end_line()
        self.log.finish()
        samples = self.config.run.global_batch * steps
        return {
            "epoch": epoch + 1,
            "samples": samples,
            "dropped_images": self.config.dropped_images,
            "bad_images": len(self.feed.remarks),
            "train_s": train_s,
            "throughput_samples_per_s": throughput_samples_per_s(samples, train_s),
            "train_loss": self._mean_loss(epoch, total),
            "lr": self.step.learning_rate,
            "skipped_steps": len(self.step.skipped) - skipped_before
            if self.step.scaler.is_enabled()
            else None,
        }

    def _mean_loss(self, epoch: int, total: _Total) -> float | None:
        """Over all ranks and all steps of an epoch that changed the weights; None without any."""
        loss_sum = float(self.wrapped.sum_over_ranks(total.loss))
        if not total.steps:
            return None
        loss = loss_sum / (total.steps * self.config.run.world_size)
        if not math.isfinite(loss):
            raise loss_not_finite(epoch + 1, loss)
        return loss

    def _scheduled(self, epoch: int, total: _Total) -> Callable[[Iterator[Batch]], Tensor]:
        """A step that sets its learning rate first, and adds its loss up."""
        config, step, number = self.config, self.step, iter(range(self.config.steps_per_epoch))

        def scheduled(batches: Iterator[Batch]) -> Tensor:
            step.learning_rate = learning_rate(
                config.options, epoch, next(number), config.steps_per_epoch
            )
            skipped = len(step.skipped)
            loss = step(batches)
            if len(step.skipped) == skipped:
                total.add(loss)
            return loss

        return scheduled

    def evaluate(self) -> Event:
        """Evaluate the model on all ranks together."""
        listing = self.config.eval_listing
        assert listing is not None  # or there would be no evaluation
        began_s = time.perf_counter()
        batches = evaluation_batches(self.part, listing)
        counts = evaluate(self.part, self.wrapped, batches, len(self.config.classes))
        return {**counts.shares(), "eval_s": time.perf_counter() - began_s}

    def save(self, epoch: int, best: Best | None) -> float:
        """Write a checkpoint by rank 0, and let the other ranks wait. Returns the seconds."""
        began_s = time.perf_counter()
        optimizer = _whole_state(self.step.optimizer, self.part.rank)
        # Where weights are shared out, all ranks gather them together.
        if self.part.rank == 0 or self.wrapped.is_sharded:
            content = self._content(epoch, best, optimizer)
            if self.part.rank == 0:
                Checkpoints(self.config.checkpoints, self.config.options.keep).write(content)
        self.part.on_progress()
        self.wrapped.barrier()
        return time.perf_counter() - began_s

    def _content(self, epoch: int, best: Best | None, optimizer: torch.optim.Optimizer) -> Content:
        """What a checkpoint holds; whole on rank 0 only."""
        model, config = self.wrapped.plain.model, self.config
        weights = model.state_dict()
        for name in weights:
            weights[name] = self._to_save(weights[name])
        return Content(
            about=About(
                model=config.run.model,
                classes=config.classes,
                image_size=config.run.image_size,
                epoch=epoch,
                best=best,
                options=asdict(config.options),
                dataset_digest=config.dataset_digest,
            ),
            model=weights,
            optimizer=optimizer_by_name(optimizer, model.named_parameters(), self._to_save),
            scaler=self.step.scaler.state_dict() if self.step.scaler.is_enabled() else None,
        )

    def _to_save(self, tensor: Tensor) -> Tensor:
        """The whole of a tensor on rank 0, on the CPU if this device does not hold it anyway."""
        whole = self.wrapped.whole_of(tensor)
        if whole is tensor:
            return tensor
        return whole.cpu() if self.part.rank == 0 else tensor


def evaluate_once(part: Part, wrapped: Wrapped, config: TrainConfig) -> Event:
    """Evaluate the checkpoint of a configuration on all ranks together."""
    assert config.resume_from is not None  # the checkpoint
    assert config.eval_listing is not None
    weights = load(config.resume_from).model
    load_into(wrapped.plain.model, weights, part_of=wrapped.part_of)
    batches = evaluation_batches(part, config.eval_listing)
    counts = evaluate(part, wrapped, batches, len(config.classes))
    return {**counts.shares(), "unreadable": counts.unreadable}


class _Total:
    """The sum of the losses of the steps of an epoch, on the device."""

    def __init__(self, device: torch.device) -> None:
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.steps = 0

    def add(self, loss: Tensor) -> None:
        """Add the mean loss of a step."""
        self.loss += loss
        self.steps += 1


def _whole_state(optimizer: torch.optim.Optimizer, rank: int) -> torch.optim.Optimizer:
    """An optimizer whose state is whole on rank 0: with --zero each rank has a part of it."""
    if hasattr(optimizer, "consolidate_state_dict"):
        optimizer.consolidate_state_dict(to=0)
    return optimizer


def _augmentation(config: TrainConfig) -> Callable[[Tensor, int, int], Tensor] | None:
    if not config.options.augment:
        return None
    # Here and not above: it loads torchvision.
    from mgpubench.training.data.augment import make_augmentation

    return make_augmentation(config.run.seed, config.run.image_size)


def _seed(seed: int, epoch: int, rank: int) -> None:
    """Seed what the model draws in an epoch (dropout): differently on each rank."""
    torch.manual_seed(random.Random(f"{seed}/{epoch}/{rank}").getrandbits(63))
