"""The training loop of every mode, and what is measured in it.

    spin-up | warm-up ... | synchronise, barrier | lead-in | window of measured steps | synchronise

The lead-in is the end of the warm-up, and runs directly before the window. It uses up the batches
that the loader could prepare during the pause, which would otherwise look free. Nothing but steps
happens in the window.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from torch import Tensor

from mgpubench.analysis.metrics import measured_steps
from mgpubench.results.rank_record import RankRecord
from mgpubench.training.clock import StepClock, make_clock
from mgpubench.training.compilation import compile_apart
from mgpubench.training.data.batch import Batch
from mgpubench.training.data.loader import open_feed
from mgpubench.training.devices import Part
from mgpubench.training.loader_alone import ask_loader
from mgpubench.training.loss_log import LossLog
from mgpubench.training.spin_up import spin_up
from mgpubench.training.step import TrainStep
from mgpubench.training.technique import Wrapped

Step = Callable[[Iterator[Batch]], Tensor]
"""One optimizer update. It takes micro-batches, and returns the mean loss, which is not read inside
the window."""


@dataclass(slots=True)
class Trace:
    """What the loop recorded: one entry per step, warm-up first."""

    step_times_s: list[float] = field(default_factory=list)
    data_waits_ns: list[int] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    clock_span_s: float = 0.0
    """From the pause to the end, by the step clock."""
    host_span_s: float = 0.0
    """The same by the host's clock, with which both ends are synchronised."""
    ended_s: float = 0.0
    """The host's clock at the end."""

    def wait_share(self, steps: int) -> float:
        """The share of the last `steps` steps in which the host waited for data."""
        waits_ns = measured_steps(self.data_waits_ns, steps)
        return sum(waits_ns) / 1e9 / math.fsum(measured_steps(self.step_times_s, steps))


def measure(part: Part, wrapped: Wrapped) -> RankRecord:
    """Train a model, and report what this process measured."""
    config, feed, step = part.config, open_feed(part), TrainStep(wrapped, part)
    watch = compile_apart(part, step.forward_backward) if config.compiled else None
    spin_up_s = spin_up(part, wrapped, step, feed.batches)
    step.count_from_here()
    trace = train(part, step, feed.batches, wrapped.barrier)
    loader_step_s = ask_loader(part, wrapped, feed.batches, trace.wait_share(config.steps))
    return RankRecord(
        rank=part.rank,
        samples=trace.samples,
        step_times_s=trace.step_times_s,
        data_waits_s=[wait / 1e9 for wait in trace.data_waits_ns],
        spin_up_s=spin_up_s,
        loader_step_s=loader_step_s,
        window_s=math.fsum(measured_steps(trace.step_times_s, config.steps)),
        clock_span_s=trace.clock_span_s,
        host_span_s=trace.host_span_s,
        window_ended_s=trace.ended_s,
        peak_memory_bytes=part.peak_memory_bytes(),
        peak_reserved_bytes=part.peak_reserved_bytes(),
        final_loss=float("nan") if step.last_loss is None else float(step.last_loss),
        remarks=tuple(sorted(feed.remarks)),
        compiling=watch.finish() if watch else None,
        skipped_steps=sum(number > config.warmup_steps for number in step.skipped)
        if step.scaler.is_enabled()
        else None,
    )


def train(part: Part, step: Step, batches: Iterator[Batch], barrier: Callable[[], None]) -> Trace:
    """Run all steps of a run and record their times."""
    config, trace = part.config, Trace()
    num_early = config.warmup_steps - config.lead_in_steps
    num_timed = config.lead_in_steps + config.steps
    loss_log = LossLog(part) if config.log_every else None
    run = Steps(step, batches, part.on_step, trace, loss_log)
    early = make_clock(part.device, num_early)
    run.repeat(num_early, early)
    part.synchronize()
    barrier()
    clock = make_clock(part.device, num_timed)
    part.synchronize()
    began_ns = time.perf_counter_ns()
    run.repeat(num_timed, clock)
    part.synchronize()
    ended_ns = time.perf_counter_ns()
    trace.host_span_s, trace.ended_s = (ended_ns - began_ns) / 1e9, ended_ns / 1e9
    timed_s = clock.intervals_s()
    trace.step_times_s = early.intervals_s() + timed_s
    trace.clock_span_s = math.fsum(timed_s)
    if loss_log is not None:
        loss_log.finish()
    return trace


class _Watched:
    """Micro-batches, with the time that a step waited for them, and the samples in them."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self.waited_ns = self.samples = 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        asked_ns = time.perf_counter_ns()
        batch = next(self._batches)
        self.waited_ns += time.perf_counter_ns() - asked_ns
        self.samples += len(batch[1])
        return batch


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one process, and where they are recorded."""

    step: Step
    batches: Iterator[Batch]
    on_step: Callable[[], None]
    trace: Trace
    loss_log: LossLog | None = None

    def repeat(self, num_steps: int, clock: StepClock) -> None:
        """Make some steps, with a mark of the clock before the first and after each."""
        step, on_step, trace, loss_log = self.step, self.on_step, self.trace, self.loss_log
        batches = _Watched(self.batches)
        clock.mark()
        for _ in range(num_steps):
            batches.waited_ns = batches.samples = 0
            loss = step(batches)
            trace.data_waits_ns.append(batches.waited_ns)
            trace.samples.append(batches.samples)
            if loss_log is not None:
                loss_log.after_step(loss * batches.samples, batches.samples)
            clock.mark()
            on_step()
