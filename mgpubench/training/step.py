"""One optimizer update."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from mgpubench.config.recipe import Recipe, measured_recipe
from mgpubench.training.data.batch import Batch
from mgpubench.training.devices import Part
from mgpubench.training.optimizer import make_optimizer
from mgpubench.training.technique import Wrapped

AUXILIARY_WEIGHT = 0.3
"""Weight of the auxiliary losses of GoogLeNet and Inception (Szegedy et al., CVPR 2015)."""


class TrainStep:
    """One optimizer update on the micro-batches of a step."""

    def __init__(self, wrapped: Wrapped, part: Part, recipe: Recipe | None = None) -> None:
        config = part.config
        self.recipe = recipe or measured_recipe(config.optimizer)
        self.optimizer = wrapped.optimizer or make_optimizer(
            wrapped.plain.parameters(), self.recipe, zero=config.ddp.zero
        )
        scales = config.precision == "amp-fp16"
        self.scaler = torch.amp.GradScaler(part.device.type, enabled=scales)
        if scales:
            self.optimizer.register_step_post_hook(self._count_update)
        self.skipped: list[int] = []
        """Numbers, from 1, of the steps in which the scaler found no finite gradients, and left
        the weights as they were."""
        self.last_loss: Tensor | None = None
        """Of the last step that changed the weights, or of the first step if none did."""
        self._steps = self._updates = 0
        self._wrapped = wrapped
        self._device = part.device
        self._accumulate = config.accumulate
        self._loss = nn.CrossEntropyLoss(label_smoothing=self.recipe.label_smoothing)

    def __call__(self, micro_batches: Iterator[Batch]) -> Tensor:
        """Copy, forward and backward of each micro-batch, then one update.

        Returns the mean loss of the step, without waiting for it.
        """
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for number in range(1, self._accumulate + 1):
            is_last = number == self._accumulate
            with nullcontext() if is_last else self._wrapped.without_sync():
                losses.append(self.forward_backward(next(micro_batches)))
        loss = losses[0] if self._accumulate == 1 else torch.stack(losses).sum()
        if self._update() or self.last_loss is None:
            self.last_loss = loss
        return loss

    def forward_backward(self, batch: Batch) -> Tensor:
        """Add the gradients of a micro-batch. Returns its share of the loss of the step."""
        images = batch[0].to(self._device, non_blocking=True)
        labels = batch[1].to(self._device, non_blocking=True)
        logits, *auxiliary = self._wrapped.model(images)
        loss: Tensor = self._loss(logits, labels)
        for other in auxiliary:
            loss = loss + AUXILIARY_WEIGHT * self._loss(other, labels)
        if self._accumulate > 1:
            loss = loss / self._accumulate
        self._wrapped.backward(self.scaler.scale(loss))
        return loss.detach()

    def count_from_here(self) -> None:
        """Forget the steps so far: they are no steps of the run."""
        self._steps = 0
        self.skipped.clear()

    @property
    def learning_rate(self) -> float:
        """Of the next update."""
        rate: float = self.optimizer.param_groups[0]["lr"]
        return rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def _update(self) -> bool:
        """Change the weights. False if the scaler leaves them as they are."""
        self._steps += 1
        updates = self._updates
        if self.recipe.clip_grad_norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self._wrapped.plain.parameters(), self.recipe.clip_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if not self.scaler.is_enabled() or self._updates > updates:
            return True
        self.skipped.append(self._steps)
        return False

    def _count_update(self, *arguments: object) -> None:
        """Called by the optimizer after each update; not after a step that the scaler skips."""
        self._updates += 1
