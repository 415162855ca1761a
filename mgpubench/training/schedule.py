"""The learning rate, a pure function of the options, the epoch and the step."""

from __future__ import annotations

import math

from mgpubench.config.train_request import TrainOptions

STEP_EPOCHS = 30
"""With the schedule `step` the rate is divided by 10 after every 30 epochs (He et al., CVPR
2016)."""


def learning_rate(options: TrainOptions, epoch: int, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step.

    Args:
        options: base rate, schedule, epochs and warm-up.
        epoch: from 0.
        step: in the epoch, from 0.
        steps_per_epoch: optimizer updates in an epoch.
    """
    done = epoch + step / steps_per_epoch
    if done < options.warmup_epochs:
        # The end of the step, so that the first one is not lost at a rate of 0. The warm-up may
        # end within the step.
        return options.lr * min(1.0, (done + 1 / steps_per_epoch) / options.warmup_epochs)
    if options.lr_schedule == "step":
        return options.lr * 0.1 ** (epoch // STEP_EPOCHS)
    if options.lr_schedule == "cosine":
        left = max(options.epochs - options.warmup_epochs, 1 / steps_per_epoch)
        return options.lr * 0.5 * (1 + math.cos(math.pi * (done - options.warmup_epochs) / left))
    return options.lr
