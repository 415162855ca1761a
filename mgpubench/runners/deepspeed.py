"""DeepSpeed's ZeRO-1: one process per device, and each updates a part of the weights.

In each step a process takes the batch of one device, from a loader of its own. The loss is the mean
over that batch. During backward the gradients are averaged over the ranks, and each rank updates
its part of the weights, for which alone it keeps the optimizer's state. Then the new weights are
gathered on all ranks (all-gather). DeepSpeed's defaults stay as they are, as far as the work is
that of the other modes.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mgpubench.config.recipe import measured_recipe
from mgpubench.config.run_config import RunConfig
from mgpubench.training.devices import Part, devices_of_rank
from mgpubench.training.optimizer import make_optimizer
from mgpubench.training.process_group import broadcast_buffers, process_group, sum_over_ranks
from mgpubench.training.technique import Record, Work, Wrapped
from mgpubench.training.trainable import build_model


def run(part: Part, work: Work[Record]) -> Record:
    """Do some work in one process of several, with the model on this process's device."""
    with process_group(part) as barrier:
        model = build_model(part)
        engine = wrap(model, part.config, part.rank)
        return work(
            part,
            Wrapped(
                model=engine,
                plain=model,
                barrier=barrier,
                without_sync=partial(without_sync, engine),
                share_buffers=partial(broadcast_buffers, model),
                sum_over_ranks=sum_over_ranks,
                optimizer=EngineSteps(engine),
                # A step divides the loss by its micro-batches itself.
                backward=partial(engine.backward, scale_wrt_gas=False),
            ),
        )


def wrap(model: nn.Module, config: RunConfig, rank: int) -> Any:
    """DeepSpeed's engine around a model, with an optimizer of torch that it splits up."""
    _, (device, *_) = devices_of_rank(config, rank)
    # It reads from here which accelerator it has, and which device of it.
    os.environ["DS_ACCELERATOR"] = device.type
    os.environ["LOCAL_RANK"] = str(device.index or 0)
    find_ninja()
    import deepspeed

    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=make_optimizer(model.parameters(), measured_recipe(config.optimizer)),
        dist_init_required=False,
        config={
            "train_micro_batch_size_per_gpu": config.micro_batch_per_device,
            "gradient_accumulation_steps": config.accumulate,
            "zero_optimization": {"stage": 1},
            "zero_allow_untested_optimizer": True,  # torch's own
            "gradient_clipping": 0.0,  # its default is another work: it clips at a norm of 1
            # It would synchronise with the device in every step.
            "timers": {"throughput": {"enabled": False}},
        },
    )
    return engine


@contextmanager
def without_sync(engine: Any) -> Iterator[None]:
    """A context in which gradients stay in this process."""
    yield
    engine.step()  # it counts micro-batches, and updates only after the last one


class EngineSteps(torch.optim.Optimizer):
    """The steps of an engine, which updates weights and then drops the gradients."""

    def __init__(self, engine: Any) -> None:
        # Not torch's own: the engine has the parameters already.
        self.param_groups = engine.optimizer.param_groups
        self.state = engine.optimizer.state
        self._engine = engine

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing: the engine has done so after its last update."""

    def step(self, closure: Any = None) -> Any:
        """Update the weights."""
        self._engine.step()


def find_ninja() -> None:
    """Let ninja be found where pip has put it, also if that environment is not active."""
    if shutil.which("ninja") is None:
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
