"""The training loop that every mode runs, and what is measured in it.

    warm-up ... | synchronise, barrier | lead-in | window of measured steps | synchronise

The lead-in is the end of the warm-up, run without a pause before the window: the pause let the
loader fill its queue, and those batches would be free. Nothing but steps happens in the window.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from mgpubench.analysis.metrics import measured_steps
from mgpubench.config.run_config import RunConfig
from mgpubench.results.schema import RankRecord
from mgpubench.training.clock import StepClock, make_clock
from mgpubench.training.compilation import compile_apart
from mgpubench.training.data.loader import Batch, Feed
from mgpubench.training.devices import Seat

LEARNING_RATE = 0.01
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4
AUXILIARY_WEIGHT = 0.3
"""Of the auxiliary classifiers of GoogLeNet and Inception (Szegedy et al., CVPR 2015)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What the loop needs of one process."""

    step: Callable[[Batch], Tensor]
    """One optimizer update; returns the loss, which nobody reads inside the window."""
    batches: Iterator[Batch]
    make_clock: Callable[[int], StepClock]
    """A clock for a number of steps."""
    synchronize: Callable[[], None]
    barrier: Callable[[], None]
    on_step: Callable[[], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """How many steps, in their order."""

    settle_steps: int
    """Warm-up steps before the pause."""
    lead_in_steps: int
    """Warm-up steps after the pause, directly before the window."""
    measured_steps: int


@dataclass(slots=True)
class Trace:
    """What the loop noted: one entry a step, warm-up first."""

    step_times_s: list[float] = field(default_factory=list)
    data_waits_ns: list[int] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    clock_span_s: float = 0.0
    """From the pause to the end, by the step clock."""
    host_span_s: float = 0.0
    """The same by the host's clock, which both ends are synchronised with."""
    last_loss: Tensor | None = None


def make_schedule(config: RunConfig) -> Schedule:
    """Split the warm-up so that the lead-in uses up what the loader had ready."""
    return Schedule(
        settle_steps=config.warmup_steps - config.lead_in_steps,
        lead_in_steps=config.lead_in_steps,
        measured_steps=config.steps,
    )


def train(job: Job, schedule: Schedule) -> Trace:
    """Run all steps of a schedule and note their times."""
    trace = Trace()
    settle = job.make_clock(schedule.settle_steps)
    _run_steps(job, schedule.settle_steps, settle, trace)
    job.synchronize()
    job.barrier()
    num_timed = schedule.lead_in_steps + schedule.measured_steps
    clock = job.make_clock(num_timed)
    job.synchronize()
    began_ns = time.perf_counter_ns()
    _run_steps(job, num_timed, clock, trace)
    job.synchronize()
    trace.host_span_s = (time.perf_counter_ns() - began_ns) / 1e9
    timed_s = clock.intervals_s()
    trace.step_times_s = settle.intervals_s() + timed_s
    trace.clock_span_s = math.fsum(timed_s)
    return trace


def _run_steps(job: Job, num_steps: int, clock: StepClock, trace: Trace) -> None:
    step, batches, on_step = job.step, job.batches, job.on_step
    waits_ns, samples, now_ns = trace.data_waits_ns, trace.samples, time.perf_counter_ns
    clock.mark()
    for _ in range(num_steps):
        asked_ns = now_ns()
        batch = next(batches)
        waits_ns.append(now_ns() - asked_ns)
        trace.last_loss = step(batch)
        samples.append(len(batch[1]))
        clock.mark()
        on_step()


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
        """Copy, forward, backward, update; returns the loss without waiting for it."""
        loss = self.forward_backward(batch)
        self._optimizer.step()
        return loss

    def forward_backward(self, batch: Batch) -> Tensor:
        """The step but for the update."""
        images = batch[0].to(self._device, non_blocking=True)
        labels = batch[1].to(self._device, non_blocking=True)
        self._optimizer.zero_grad(set_to_none=True)
        logits, *auxiliary = self._model(images)
        loss: Tensor = self._loss(logits, labels)
        for other in auxiliary:
            loss = loss + AUXILIARY_WEIGHT * self._loss(other, labels)
        loss.backward()
        return loss.detach()


def no_barrier() -> None:
    """The barrier of a run with one process."""


def measure(
    config: RunConfig, seat: Seat, feed: Feed, model: nn.Module, barrier: Callable[[], None]
) -> RankRecord:
    """Train a model, however it is wrapped, and report what this process saw."""
    share = seat.share
    step = TrainStep(model, share.device)
    watch = compile_apart(config, share, step.forward_backward) if config.compiled else None
    job = Job(
        step=step,
        batches=feed.batches,
        make_clock=lambda num_steps: make_clock(share.device, num_steps),
        synchronize=share.synchronize,
        barrier=barrier,
        on_step=seat.on_step,
    )
    trace = train(job, make_schedule(config))
    return RankRecord(
        rank=share.rank,
        samples=trace.samples,
        step_times_s=trace.step_times_s,
        data_waits_s=[wait / 1e9 for wait in trace.data_waits_ns],
        window_s=math.fsum(measured_steps(trace.step_times_s, config.steps)),
        clock_span_s=trace.clock_span_s,
        host_span_s=trace.host_span_s,
        peak_memory_bytes=share.peak_memory_bytes(),
        final_loss=float("nan") if trace.last_loss is None else float(trace.last_loss),
        remarks=tuple(sorted(feed.remarks)),
        compiling=watch.finish() if watch else None,
    )
