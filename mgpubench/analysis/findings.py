"""Is this number believable? Each finding is a measured fact and advice that knows the options.

Findings stand beside a figure; they never suppress it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mgpubench.analysis.metrics import (
    data_wait_share,
    image_paths,
    measured_steps,
    slowest_rank,
    was_compiled,
)
from mgpubench.config.run_config import RunConfig
from mgpubench.format import format_count, format_percent
from mgpubench.results.schema import Figures, RankRecord

CPU_SMOKE = "cpu-smoke"
"""The finding of every CPU row; tables tell it once for all of them."""

BUSY_MACHINE = "busy-machine"
"""The finding of a run beside others that took the cores; tables warn of rows with many such."""

CLOCK_TOLERANCE = 0.01
MIN_CLOCK_GAP_S = 0.001
"""The two clocks may differ by this share of the span, and always by a millisecond: waiting for a
GPU to finish takes some of that, by the host's clock alone."""

OTHERS_LIMIT = 0.2
"""Above this share of the usable cores' time, taken by others, a run is not on its own."""

DATA_WAIT_LIMIT = 0.05
"""Above this share of the window the loader, and not the mode, is what is measured."""

DRIFT_LIMIT = 0.01
DRIFT_STANDARD_ERRORS = 2.0
DRIFT_BATCHES = 8
MIN_STEPS_FOR_DRIFT = 5 * DRIFT_BATCHES
"""Not steady: over the window a line through 8 batch means changes by more than 1 %, and by more
than twice its standard error."""

DDP_MIN_WARMUP_STEPS = 12
"""On CUDA, DDP rebuilds its buckets after step 1, and its own statistics make the host wait in each
of the first 10 steps."""


MAX_PATHS = 3
"""Named in one finding; the others are counted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the reader of a figure must know."""

    code: str
    message: str


def check_run(
    config: RunConfig, ranks: Sequence[RankRecord], figures: Figures
) -> tuple[Finding, ...]:
    """All findings about one finished run."""
    deciding = slowest_rank(ranks)
    return (
        *_check_kind(config),
        *_check_warmup(config),
        *_check_clocks(ranks),
        *_check_loss(ranks),
        *_check_images(ranks),
        *_check_compiling(config, ranks, figures),
        *_check_others(figures),
        *_check_data_wait(config, figures),
        *_check_drift(measured_steps(deciding.step_times_s, config.steps), config),
    )


def _check_kind(config: RunConfig) -> Iterator[Finding]:
    if config.device_type == "cpu":
        yield Finding(CPU_SMOKE, "CPU rows are smoke tests of the tool, not a forecast for GPUs")
    if config.effective_mode == "passthrough":
        yield Finding(
            "dp-passthrough", "dp on one device just calls the module; use --gpus 2 or more"
        )
    if config.effective_mode == "oversubscribed":
        yield Finding(
            "oversubscribed", "several replicas shared a GPU: a test of the code, not a speed"
        )


def _check_warmup(config: RunConfig) -> Iterator[Finding]:
    if config.queue_length > config.lead_in_steps:
        yield Finding(
            "short-lead-in",
            f"{config.queue_length} batches could be loaded before the window, and only "
            f"{config.lead_in_steps} steps used them up: loading may look faster than it is; use "
            f"--warmup-steps {config.queue_length}",
        )
    if config.warmup_steps == 0:
        yield Finding(
            "no-warmup",
            "without warm-up the first step's one-time costs are in the window; use "
            "--warmup-steps 20",
        )
    elif (
        config.mode == "ddp"
        and config.device_type == "cuda"
        and config.warmup_steps < DDP_MIN_WARMUP_STEPS
    ):
        yield Finding(
            "short-warmup",
            f"{config.warmup_steps} warm-up steps; DDP on GPUs needs {DDP_MIN_WARMUP_STEPS} until "
            "its steps are alike",
        )


def _check_clocks(ranks: Sequence[RankRecord]) -> Iterator[Finding]:
    shares = [
        share
        for rank in ranks
        if (share := clock_disagreement(rank)) > CLOCK_TOLERANCE
        and share * rank.host_span_s > MIN_CLOCK_GAP_S
    ]
    if shares:
        yield Finding(
            "clock-mismatch",
            f"device events and host clock differ by {format_percent(max(shares))} of the time "
            f"(limit {format_percent(CLOCK_TOLERANCE)}); other work on the GPU?",
        )


def clock_disagreement(rank: RankRecord) -> float:
    """Difference of step clock and host clock over the same span, as a share of it."""
    return abs(rank.clock_span_s - rank.host_span_s) / rank.host_span_s


def _check_loss(ranks: Sequence[RankRecord]) -> Iterator[Finding]:
    bad = [rank for rank in ranks if not math.isfinite(rank.final_loss)]
    if bad:
        yield Finding(
            "loss-not-finite",
            f"the loss of rank {bad[0].rank} ended as {bad[0].final_loss}: speed is measured, "
            "training is not",
        )


def _check_images(ranks: Sequence[RankRecord]) -> Iterator[Finding]:
    if bad := image_paths(ranks, "bad"):
        yield Finding(
            "bad-images",
            f"{format_count(len(bad), 'image')} could not be read, and others stood in: "
            f"{_some(bad)}",
        )
    if huge := image_paths(ranks, "huge"):
        yield Finding(
            "huge-images",
            f"{format_count(len(huge), 'image')} of more than 89 million pixels, which take long "
            f"to decode: {_some(huge)}",
        )


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MAX_PATHS} more" if len(paths) > MAX_PATHS else ""
    return ", ".join(paths[:MAX_PATHS]) + more


def _check_compiling(
    config: RunConfig, ranks: Sequence[RankRecord], figures: Figures
) -> Iterator[Finding]:
    if config.compiled and not was_compiled(ranks):
        yield Finding(
            "not-compiled",
            "torch.compile compiled nothing, and the model ran as it is; is it switched off in the "
            "environment (TORCHDYNAMO_DISABLE, TORCH_COMPILE_DISABLE)?",
        )
    if figures.recompiles:
        yield Finding(
            "recompiled",
            f"{format_count(figures.recompiles, 'piece')} of the model compiled again after the "
            "first pass: that time may be in the window; more --warmup-steps may take it out",
        )
    if most := max((rank.compiling.graph_breaks for rank in ranks if rank.compiling), default=0):
        yield Finding(
            "graph-breaks",
            f"{format_count(most, 'place')} at which the model leaves the compiled code",
        )


def _check_others(figures: Figures) -> Iterator[Finding]:
    share = figures.others_cpu_share
    if share is not None and share > OTHERS_LIMIT:
        yield Finding(
            BUSY_MACHINE,
            f"other processes took {format_percent(share)} of the CPU time (limit "
            f"{format_percent(OTHERS_LIMIT)}): on busy cores modes with several threads a process "
            "can be many times slower; repeat it on a machine that nobody else uses",
        )


def _check_data_wait(config: RunConfig, figures: Figures) -> Iterator[Finding]:
    share = data_wait_share(figures.data_wait_s, figures.window_s)
    if share is not None and share > DATA_WAIT_LIMIT:
        yield Finding(
            "loader-bound",
            f"{format_percent(share)} of the window was spent waiting for data (limit "
            f"{format_percent(DATA_WAIT_LIMIT)}) with "
            f"{format_count(config.workers_per_device, 'loader worker')} a device; try another "
            "--workers-per-gpu (all together as many as cores), smaller files or a faster disk; "
            "--data synthetic leaves loading out",
        )


def _check_drift(times_s: Sequence[float], config: RunConfig) -> Iterator[Finding]:
    if len(times_s) < MIN_STEPS_FOR_DRIFT:
        return
    change, error = drift(times_s)
    if abs(change) > DRIFT_LIMIT and abs(change) > DRIFT_STANDARD_ERRORS * error:
        advice = "what slowed it down: heat, clocks, other work?"
        if change < 0:
            advice = f"try --warmup-steps {max(20, 2 * config.warmup_steps)}"
        yield Finding(
            "not-steady",
            f"step times changed by {change * 100:+.1f} % of their mean over the window (limit "
            f"{format_percent(DRIFT_LIMIT)}) after {config.warmup_steps} warm-up steps; {advice}",
        )


def drift(times_s: Sequence[float]) -> tuple[float, float]:
    """Relative change of the step time over the window, and its standard error.

    Least squares through the means of DRIFT_BATCHES equal batches; a remainder of steps at the
    start is left out. Batch means, since single steps are correlated.
    """
    size = len(times_s) // DRIFT_BATCHES
    first = len(times_s) - size * DRIFT_BATCHES
    means = [
        math.fsum(times_s[start : start + size]) / size
        for start in range(first, len(times_s), size)
    ]
    centre = (DRIFT_BATCHES - 1) / 2
    average = math.fsum(means) / DRIFT_BATCHES
    spread = sum((i - centre) ** 2 for i in range(DRIFT_BATCHES))
    slope = math.fsum((i - centre) * mean for i, mean in enumerate(means)) / spread
    residuals = math.fsum(
        (mean - average - slope * (i - centre)) ** 2 for i, mean in enumerate(means)
    )
    error = math.sqrt(residuals / (DRIFT_BATCHES - 2) / spread)
    whole = (DRIFT_BATCHES - 1) / average
    return slope * whole, error * whole
