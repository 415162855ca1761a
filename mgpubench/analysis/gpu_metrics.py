"""The definitions of the figures that telemetry gives: energy, power, heat, use. See `metrics`.

They are about the window of a run, and about the GPUs that took part. Each is None where it is not
known for all of these GPUs.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from mgpubench.analysis.metrics import slowest_rank
from mgpubench.results.clock_reasons import THROTTLING
from mgpubench.results.rank_record import RankRecord
from mgpubench.results.schema import Figures, RunRecord
from mgpubench.results.telemetry import Sample

MIN_WINDOW_S = 2.0
"""In a shorter window there are one or two samples, of a sensor that itself averages over up to a
second."""

MAX_GAP_S = 5.0
"""Between two samples that are further apart, energy is unknown."""


@dataclass(frozen=True, slots=True)
class Window:
    """The measured steps of a run, by the clock of all processes of the machine."""

    began_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.ended_s - self.began_s


Trace = Sequence[Sample]
"""The samples of one GPU in their order, from before the window to after it."""


def window_of(ranks: Sequence[RankRecord]) -> Window | None:
    """The window of the slowest rank; None if its place in time is unknown."""
    slowest = slowest_rank(ranks)
    if slowest.window_ended_s is None:
        return None
    return Window(slowest.window_ended_s - slowest.window_s, slowest.window_ended_s)


def energy_j(trace: Trace, window: Window) -> float | None:
    """The energy that a GPU took in the window.

    The difference of its energy counter between both ends, where it is interpolated between the
    samples around them. Without a counter, the integral of the power, by straight lines between the
    samples. None if no sample is on either side, or if two are more than 5 s apart.
    """
    around = _around(trace, window)
    if not around or any(b.clock_s - a.clock_s > MAX_GAP_S for a, b in pairwise(around)):
        return None
    if all(sample.energy_j is not None for sample in around):
        total_j = [sample.energy_j or 0.0 for sample in around]
    elif all(sample.power_w is not None for sample in around):
        total_j = _integral(around)
    else:
        return None
    times_s = [sample.clock_s for sample in around]
    used_j = _at(times_s, total_j, window.ended_s) - _at(times_s, total_j, window.began_s)
    return used_j if used_j >= 0 else None  # the driver was loaded again


def _around(trace: Trace, window: Window) -> Trace:
    """The samples from the last one before the window to the first one after it."""
    first = bisect_left(trace, window.began_s, key=_clock_s)
    first -= first == len(trace) or trace[first].clock_s > window.began_s
    last = bisect_left(trace, window.ended_s, key=_clock_s)
    return trace[first : last + 1] if first >= 0 and last < len(trace) else ()


def _integral(trace: Trace) -> list[float]:
    """The energy up to each sample, from its power."""
    total_j = [0.0]
    for before, after in pairwise(trace):
        mean_w = ((before.power_w or 0.0) + (after.power_w or 0.0)) / 2
        total_j.append(total_j[-1] + mean_w * (after.clock_s - before.clock_s))
    return total_j


def _at(times_s: Sequence[float], values: Sequence[float], time_s: float) -> float:
    """The value at one time, on a straight line between the two around it."""
    after = max(1, bisect_left(times_s, time_s))
    span_s = times_s[after] - times_s[after - 1]
    share = (time_s - times_s[after - 1]) / span_s if span_s else 0.0
    return values[after - 1] + share * (values[after] - values[after - 1])


def utilization(trace: Trace, window: Window) -> float | None:
    """The mean of a GPU's utilisation over its samples in the window, 0 to 1.

    NVML's utilisation is the share of the last second or less in which any work was on the GPU.
    """
    shares = [each.utilization for each in within(trace, window) if each.utilization is not None]
    return math.fsum(shares) / len(shares) if shares else None


def temperature_max_c(trace: Trace, window: Window) -> float | None:
    """The highest temperature of a GPU in the window."""
    known = [each.temperature_c for each in within(trace, window) if each.temperature_c is not None]
    return max(known, default=None)


def throttle_reasons(traces: Sequence[Trace], window: Window) -> list[str]:
    """What slowed any GPU down in any sample in the window: heat, power, a brake."""
    texts = {sample.clock_reasons for trace in traces for sample in within(trace, window)}
    seen = {reason for text in texts for reason in text.split(";")}
    return [reason for reason in THROTTLING if reason in seen]


def within(trace: Trace, window: Window) -> list[Sample]:
    """The samples in the window."""
    first = bisect_left(trace, window.began_s, key=_clock_s)
    return list(trace[first : bisect_right(trace, window.ended_s, key=_clock_s)])


def _clock_s(sample: Sample) -> float:
    return sample.clock_s


def samples_per_joule(samples: int | None, energy: float | None) -> float | None:
    """Samples of all devices, divided by the energy of all GPUs: a ratio of sums."""
    return samples / energy if samples is not None and energy else None


def add_gpu_figures(
    figures: Figures, traces: Sequence[Trace | None], ranks: Sequence[RankRecord]
) -> Figures:
    """The figures of a run with those of its GPUs, from a trace of each."""
    window = window_of(ranks)
    known = [trace for trace in traces if trace]
    if window is None or window.seconds < MIN_WINDOW_S or not known or len(known) < len(traces):
        return figures
    total_j = _of_all(math.fsum, [energy_j(trace, window) for trace in known])
    shares = [utilization(trace, window) for trace in known]
    share_sum = _of_all(math.fsum, shares)
    return replace(
        figures,
        gpu_power_mean_w=None if total_j is None else total_j / window.seconds / len(known),
        energy_j=total_j,
        samples_per_joule=samples_per_joule(figures.samples, total_j),
        gpu_temperature_max_c=_of_all(max, [temperature_max_c(trace, window) for trace in known]),
        gpu_utilization_mean=None if share_sum is None else share_sum / len(known),
        gpu_utilization_per_device=_per_device(shares),
        throttle_reasons=";".join(throttle_reasons(known, window)),
    )


def _of_all(join: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    """The values of all GPUs, joined; None if one is unknown."""
    known = [value for value in values if value is not None]
    return join(known) if len(known) == len(values) else None


def _per_device(shares: Sequence[float | None]) -> str:
    """A value for each device, with three decimals; empty if none is known."""
    texts = ["" if share is None else f"{share:.3f}" for share in shares]
    return ";".join(texts) if any(texts) else ""


def pooled_samples_per_joule(runs: Sequence[RunRecord]) -> float | None:
    """The samples of several runs, divided by their energy; of the runs whose energy is known."""
    known = [run for run in runs if run.energy_j is not None and run.samples is not None]
    samples = sum(run.samples or 0 for run in known)
    return samples_per_joule(samples, math.fsum(run.energy_j or 0.0 for run in known))
