"""The one definition of every figure. Pure functions, without I/O and without torch.

Units are in the names. A figure that a run is too short for is None, and never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from mgpubench.config.comm_request import SPLIT_OPERATIONS, Operation
from mgpubench.config.run_config import RunConfig
from mgpubench.results.comm import CommFigures
from mgpubench.results.rank_record import RankRecord
from mgpubench.results.schema import Figures
from mgpubench.results.training import EpochRecord

if TYPE_CHECKING:
    from mgpubench.machine.cpu_usage import CpuTime  # psutil is not needed to compare

N = TypeVar("N", int, float)

MIN_BUSY_SPAN_S = 0.3
"""A shorter run says nothing about CPU time: it is counted in steps of 10 ms, and starting a rank
does not count as its own."""

MIN_COUNTED_SHARE = 0.5
"""If the system counts less than this of what the run itself used, its counters stand still or do
not count all cores, and say nothing about others."""

CHANGE_BATCHES = 8
MIN_STEPS_FOR_CHANGE = 5 * CHANGE_BATCHES

ROUNDING = 1e-9
"""29 % as a share may be another float than 29 images of 100."""

STALL_DEVIATIONS = 5
NORMAL_MAD = 1.4826
"""Standard deviation of normal noise in median absolute deviations."""
MIN_STEPS_FOR_STALLS = 20

MIN_STEPS_FOR_P95 = 20
MIN_STEPS_FOR_P99 = 100
"""With fewer than 1 / (1 - q) steps the quantile would be the maximum by another name."""


def slowest_rank(ranks: Sequence[RankRecord]) -> RankRecord:
    """The rank with the longest window, whose clock decides.

    The maximum and not the mean, since the all-reduce makes all ranks wait for the slowest one.
    """
    return max(ranks, key=lambda rank: rank.window_s)


def throughput_samples_per_s(samples: int, window_s: float) -> float:
    """Samples of all devices over the window, divided by its length: a ratio of sums."""
    return samples / window_s


def throughput_per_device(throughput: float, num_devices: int) -> float:
    """The throughput divided by the number of devices, not of processes: DP has only one."""
    return throughput / num_devices


def training_samples_per_s(epochs: Sequence[EpochRecord]) -> float | None:
    """The throughput of a training: all samples of its epochs, divided by the time they took.

    The first epoch counts too. Evaluation and checkpoints do not. None without epochs.
    """
    if not epochs:
        return None
    samples = sum(epoch.samples for epoch in epochs)
    return throughput_samples_per_s(samples, training_s(epochs))


def training_s(epochs: Sequence[EpochRecord]) -> float:
    """Seconds of training: the sum of `train_s`. Evaluation and checkpoints are not in it."""
    return math.fsum(epoch.train_s for epoch in epochs)


def best_epoch(epochs: Sequence[EpochRecord]) -> EpochRecord | None:
    """The epoch with the highest top-1, and the first of them; None without an evaluation."""
    evaluated = [epoch for epoch in epochs if epoch.top1 is not None]
    return max(evaluated, key=lambda epoch: (epoch.top1 or 0.0, -epoch.epoch), default=None)


def seconds_to_accuracy(epochs: Sequence[EpochRecord], top1: float) -> float | None:
    """Seconds of training (`training_s`) up to the end of the first epoch with this top-1.

    Evaluation, checkpoints, the start of processes and epochs that were lost in an interruption do
    not count. None if no epoch reached it, or if an epoch before is not known: a training that
    began with the checkpoint of another one has no such time.

    Args:
        epochs: in their order.
        top1: share of the evaluated images, 0 to 1.
    """
    for count, epoch in enumerate(epochs, start=1):
        if epoch.epoch != count:
            return None
        if epoch.top1 is not None and epoch.top1 >= top1 - ROUNDING:
            return training_s(epochs[:count])
    return None


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile, 0 <= q <= 1, linear between order statistics (Hyndman and Fan, type 7)."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def measured_steps(values: Sequence[N], steps: int) -> Sequence[N]:
    """The last `steps` values: the window without its warm-up."""
    return values[len(values) - steps :]


def data_wait_share(data_wait_s: float | None, window_s: float | None) -> float | None:
    """The share of the window that the slowest rank spent waiting for data, 0 to 1."""
    if data_wait_s is None or window_s is None:
        return None
    return data_wait_s / window_s


def scaling_efficiency(speedup: float, num_devices: int) -> float:
    """Speed-up over one device divided by the number of devices; 1 is perfect scaling."""
    return speedup / num_devices


def node_efficiency(throughput: float, of_one_node: float, num_nodes: int) -> float:
    """The throughput of several machines divided by as many times that of one of them.

    Each has as many devices as the one, so that 1 is perfect scaling over machines.
    """
    return throughput / (num_nodes * of_one_node)


def skipped_images(config: RunConfig, ranks: Sequence[RankRecord]) -> int | None:
    """How many different images could not be read and were replaced by others."""
    if not config.uses_folder:
        return None
    return len(image_paths(ranks, "bad"))


def image_paths(ranks: Sequence[RankRecord], kind: str) -> list[str]:
    """The images with a remark of this kind, each once."""
    return sorted({item.path for rank in ranks for item in rank.remarks if item.kind == kind})


def others_cpu_share(before: CpuTime, after: CpuTime, ranks: Sequence[RankRecord]) -> float | None:
    """The share of time, 0 to 1, that other processes took of the cores this one may run on.

    None if the system does not say, or if the run was too short.
    """
    elapsed_s = after.at_s - before.at_s
    if before.busy_s is None or after.busy_s is None or elapsed_s < MIN_BUSY_SPAN_S:
        return None
    own_s = after.own_s - before.own_s + math.fsum(rank.cpu_s for rank in ranks)
    counted_s = after.busy_s - before.busy_s
    if counted_s < MIN_COUNTED_SHARE * own_s:
        return None
    share = (counted_s - own_s) / (elapsed_s * after.num_cores)
    return min(1.0, max(0.0, share))


def step_time_change(times_s: Sequence[float]) -> float | None:
    """Relative change of the step time over the window: 0.02 means that it ended 2 % slower.

    By least squares through the means of 8 equal batches of steps, since single steps are
    correlated. A remainder of steps at the start is left out. None for fewer than 40 steps.
    """
    if len(times_s) < MIN_STEPS_FOR_CHANGE:
        return None
    means = _batch_means(times_s)
    centre = (CHANGE_BATCHES - 1) / 2
    spread = sum((i - centre) ** 2 for i in range(CHANGE_BATCHES))
    slope = math.fsum((i - centre) * batch for i, batch in enumerate(means)) / spread
    average = math.fsum(means) / CHANGE_BATCHES
    return slope * (CHANGE_BATCHES - 1) / average


def _batch_means(times_s: Sequence[float]) -> list[float]:
    """The mean step time of each batch; the last batch ends with the last step."""
    size = len(times_s) // CHANGE_BATCHES
    first = len(times_s) - size * CHANGE_BATCHES
    starts = range(first, len(times_s), size)
    return [math.fsum(times_s[start : start + size]) / size for start in starts]


def stalled_share(times_s: Sequence[float]) -> float | None:
    """The share of the window, 0 to 1, that stalled steps took beyond the median step.

    A step stalls if its logarithm is above the median by more than 5 x 1.4826 median absolute
    deviations of the logarithms, which is 5 standard deviations of normal noise. None for fewer
    than 20 steps.
    """
    if len(times_s) < MIN_STEPS_FOR_STALLS:
        return None
    logs = [math.log(time_s) for time_s in times_s]
    centre = quantile(logs, 0.5)
    deviation = quantile([abs(value - centre) for value in logs], 0.5)
    limit_s = math.exp(centre + STALL_DEVIATIONS * NORMAL_MAD * deviation)
    typical_s = math.exp(centre)
    lost_s = math.fsum(time_s - typical_s for time_s in times_s if time_s > limit_s)
    return lost_s / math.fsum(times_s)


def compile_s(ranks: Sequence[RankRecord]) -> float | None:
    """Seconds that the slowest rank took for the pass in which it compiled.

    They are part of no other time. None if nothing was compiled. All runs of a session share
    torch's cache of compiled code, so the first run that compiles takes longest.
    """
    if not was_compiled(ranks):
        return None
    return max(rank.compiling.first_pass_s for rank in ranks if rank.compiling)


def was_compiled(ranks: Sequence[RankRecord]) -> bool:
    """True if torch.compile compiled something in every rank. It may run a model uncompiled."""
    return all(rank.compiling is not None and rank.compiling.graphs > 0 for rank in ranks)


def recompiles(ranks: Sequence[RankRecord]) -> int | None:
    """Graphs compiled after that pass, in the rank with most of them."""
    return max((rank.compiling.recompiles for rank in ranks if rank.compiling), default=None)


def skipped_steps(ranks: Sequence[RankRecord]) -> int | None:
    """Measured steps that changed no weights; None without a GradScaler.

    The ranks skip the same ones, since they have the same gradients.
    """
    known = [rank.skipped_steps for rank in ranks if rank.skipped_steps is not None]
    return max(known, default=None)


def warmup_s(ranks: Sequence[RankRecord], steps: int) -> float:
    """Seconds of training before the window: the spin-up, and all but the last `steps` steps.

    Those of the slowest rank, which gives the window.
    """
    rank = slowest_rank(ranks)
    return rank.spin_up_s + math.fsum(rank.step_times_s[: len(rank.step_times_s) - steps])


def summarize(
    config: RunConfig, ranks: Sequence[RankRecord], others: float | None = None
) -> Figures:
    """All figures of one finished run.

    Samples and window are those of all ranks. Step times and data wait are the slowest rank's: the
    steps of N synchronous ranks are one process observed N times, and must not be pooled. `others`
    is the result of `others_cpu_share`.
    """
    slowest = slowest_rank(ranks)
    times = measured_steps(slowest.step_times_s, config.steps)
    samples = sum(sum(measured_steps(rank.samples, config.steps)) for rank in ranks)
    throughput = throughput_samples_per_s(samples, slowest.window_s)
    memory = [peak for rank in ranks for peak in rank.peak_memory_bytes]
    reserved = [peak for rank in ranks for peak in rank.peak_reserved_bytes]
    return Figures(
        samples=samples,
        window_s=slowest.window_s,
        throughput_samples_per_s=throughput,
        throughput_per_device_samples_per_s=throughput_per_device(throughput, config.num_devices),
        step_time_median_s=quantile(times, 0.5),
        step_time_p95_s=quantile(times, 0.95) if len(times) >= MIN_STEPS_FOR_P95 else None,
        step_time_p99_s=quantile(times, 0.99) if len(times) >= MIN_STEPS_FOR_P99 else None,
        step_time_max_s=max(times),
        data_wait_s=math.fsum(measured_steps(slowest.data_waits_s, config.steps)),
        peak_memory_bytes=";".join(map(str, memory)),
        peak_reserved_bytes=";".join(map(str, reserved)),
        skipped_images=skipped_images(config, ranks),
        compile_s=compile_s(ranks),
        recompiles=recompiles(ranks),
        others_cpu_share=others,
        step_time_change=step_time_change(times),
        skipped_steps=skipped_steps(ranks),
    )


def call_times_s(block_times_s: Sequence[Sequence[float]], calls: int) -> list[float]:
    """Seconds of a call in each timed block: the block of the slowest rank, divided by its calls.

    `block_times_s` holds the blocks of each rank.
    """
    return [max(of_ranks) / calls for of_ranks in zip(*block_times_s, strict=True)]


def algorithm_bandwidth(size_bytes: int, time_s: float) -> float:
    """Bytes per second: the size of the whole buffer, divided by the time of a call.

    As nccl-tests define it (NVIDIA/nccl-tests, doc/PERFORMANCE.md).
    """
    return size_bytes / time_s


def bus_factor(operation: Operation, num_devices: int) -> float:
    """Bus bandwidth divided by algorithm bandwidth, by nccl-tests' definitions.

    NVIDIA/nccl-tests, doc/PERFORMANCE.md, and src/gather.cu, scatter.cu and sendrecv.cu for those
    that the page does not have.
    """
    if operation == "all-reduce":
        return 2 * (num_devices - 1) / num_devices
    return (num_devices - 1) / num_devices if operation in SPLIT_OPERATIONS else 1.0


def bus_bandwidth(operation: Operation, algorithm: float, num_devices: int) -> float:
    """Bytes per second that the busiest link carries if the operation sends no byte in vain.

    It may be compared with the speed of the link, whatever the number of devices. Switches that
    reduce by themselves (NVLink SHARP) send less, so that it can be above the speed of the link.
    """
    return algorithm * bus_factor(operation, num_devices)


def summarize_size(
    operation: Operation, num_devices: int, size_bytes: int, times_s: Sequence[float]
) -> CommFigures:
    """The figures of one size of a run of collectives. The barrier has a time and no bandwidth.

    `times_s` is the result of `call_times_s`.
    """
    median_s = quantile(times_s, 0.5)
    algorithm = algorithm_bandwidth(size_bytes, median_s) if size_bytes else None
    return CommFigures(
        time_median_s=median_s,
        time_min_s=min(times_s),
        time_max_s=max(times_s),
        algorithm_bandwidth_bytes_per_s=algorithm,
        bus_bandwidth_bytes_per_s=algorithm and bus_bandwidth(operation, algorithm, num_devices),
    )
