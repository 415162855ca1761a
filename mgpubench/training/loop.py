"""The training loop of every mode, and what is measured in it.

    warm-up ... | synchronise, barrier | lead-in | window of measured steps | synchronise

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
from mgpubench.training.step import TrainStep
from mgpubench.training.technique import Wrapped

Step = Callable[[Batch], Tensor]
"""One optimizer update. It returns the loss, which is not read inside the window."""


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
    last_loss: Tensor | None = None


def measure(part: Part, wrapped: Wrapped) -> RankRecord:
    """Train a model, and report what this process measured."""
    feed = open_feed(part)
    step = TrainStep(wrapped.model, part.device)
    watch = compile_apart(part, step.forward_backward) if part.config.compiled else None
    trace = train(part, step, feed.batches, wrapped.barrier)
    return RankRecord(
        rank=part.rank,
        samples=trace.samples,
        step_times_s=trace.step_times_s,
        data_waits_s=[wait / 1e9 for wait in trace.data_waits_ns],
        window_s=math.fsum(measured_steps(trace.step_times_s, part.config.steps)),
        clock_span_s=trace.clock_span_s,
        host_span_s=trace.host_span_s,
        peak_memory_bytes=part.peak_memory_bytes(),
        final_loss=float("nan") if trace.last_loss is None else float(trace.last_loss),
        remarks=tuple(sorted(feed.remarks)),
        compiling=watch.finish() if watch else None,
    )


def train(part: Part, step: Step, batches: Iterator[Batch], barrier: Callable[[], None]) -> Trace:
    """Run all steps of a run and record their times."""
    config, trace = part.config, Trace()
    num_early = config.warmup_steps - config.lead_in_steps
    num_timed = config.lead_in_steps + config.steps
    run = _Steps(step, batches, part.on_step, trace)
    early = make_clock(part.device, num_early)
    run.repeat(num_early, early)
    part.synchronize()
    barrier()
    clock = make_clock(part.device, num_timed)
    part.synchronize()
    began_ns = time.perf_counter_ns()
    run.repeat(num_timed, clock)
    part.synchronize()
    trace.host_span_s = (time.perf_counter_ns() - began_ns) / 1e9
    timed_s = clock.intervals_s()
    trace.step_times_s = early.intervals_s() + timed_s
    trace.clock_span_s = math.fsum(timed_s)
    return trace


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of one process, and where they are recorded."""

    step: Step
    batches: Iterator[Batch]
    on_step: Callable[[], None]
    trace: Trace

    def repeat(self, num_steps: int, clock: StepClock) -> None:
        step, batches, on_step, trace = self.step, self.batches, self.on_step, self.trace
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
