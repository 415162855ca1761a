"""One optimizer update."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mgpubench.training.data.batch import Batch

LEARNING_RATE = 0.01
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4
AUXILIARY_WEIGHT = 0.3
"""Weight of the auxiliary losses of GoogLeNet and Inception (Szegedy et al., CVPR 2015)."""


class TrainStep:
    """One optimizer update on one batch."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._model = model
        self._device = device
        self._loss = nn.CrossEntropyLoss()
        self._optimizer = torch.optim.SGD(
            model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
        )

    def __call__(self, batch: Batch) -> Tensor:
        """Copy, forward, backward, update. Returns the loss without waiting for it."""
        loss = self.forward_backward(batch)
        self._optimizer.step()
        return loss

    def forward_backward(self, batch: Batch) -> Tensor:
        """The step without the update."""
        images = batch[0].to(self._device, non_blocking=True)
        labels = batch[1].to(self._device, non_blocking=True)
        self._optimizer.zero_grad(set_to_none=True)
        logits, *auxiliary = self._model(images)
        loss: Tensor = self._loss(logits, labels)
        for other in auxiliary:
            loss = loss + AUXILIARY_WEIGHT * self._loss(other, labels)
        loss.backward()
        return loss.detach()
