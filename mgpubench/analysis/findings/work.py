"""Findings about what was run: devices, warm-up and torch.compile."""

from __future__ import annotations

from collections.abc import Iterator

from mgpubench.analysis.findings.kind import FindingKind, MeasuredRun
from mgpubench.analysis.groups import loses_channels_last
from mgpubench.analysis.metrics import was_compiled
from mgpubench.config.preset import STANDARD
from mgpubench.config.run_config import RunConfig
from mgpubench.format import format_count

DDP_MIN_WARMUP_STEPS = 12
"""On CUDA, DDP rebuilds its buckets after step 1, and its own statistics make the host wait in each
of the first 10 steps."""

CPU_NOTE = "CPU rows are smoke tests of the tool, not a forecast for GPUs"


def _on_cpu(run: MeasuredRun) -> Iterator[str]:
    if run.config.device_type == "cpu":
        yield CPU_NOTE


def _passes_through(run: MeasuredRun) -> Iterator[str]:
    if run.config.effective_mode == "passthrough":
        yield "dp on one device just calls the module; use --gpus 2 or more"


def _shares_gpus(run: MeasuredRun) -> Iterator[str]:
    if run.config.effective_mode == "oversubscribed":
        yield "several replicas shared a GPU: this tests the code, and measures nothing"


def _lost_channels_last(run: MeasuredRun) -> Iterator[str]:
    if loses_channels_last(run.config):
        yield (
            "DataParallel gives the weights to all replicas but the first in the default memory "
            "format: this is not the work of --channels-last; use ddp, or leave the option out"
        )


def _has_no_warmup(run: MeasuredRun) -> Iterator[str]:
    if run.config.warmup_steps == 0:
        yield (
            "without warm-up the one-time costs of the first step are in the window; "
            f"{_longer_warmup(run.config)}"
        )


def _has_short_warmup(run: MeasuredRun) -> Iterator[str]:
    config = run.config
    on_gpus = config.mode == "ddp" and config.device_type == "cuda"
    if on_gpus and 0 < config.warmup_steps < DDP_MIN_WARMUP_STEPS:
        yield (
            f"{config.warmup_steps} warm-up steps; on GPUs the steps of DDP are alike only after "
            f"{DDP_MIN_WARMUP_STEPS}; {_longer_warmup(config)}"
        )


def _has_short_lead_in(run: MeasuredRun) -> Iterator[str]:
    config = run.config
    if config.queue_length > config.lead_in_steps:
        yield (
            f"{config.queue_length} batches could be loaded before the window, and only "
            f"{config.lead_in_steps} steps used them up: loading may look faster than it is; "
            f"{_longer_warmup(config)}"
        )


def _longer_warmup(config: RunConfig) -> str:
    """One advice for every finding about warm-up, and for all modes of a session."""
    steps = max(STANDARD.warmup_steps, config.longest_queue)
    return f"use --warmup-steps {steps}, or leave the option out"


def _was_not_compiled(run: MeasuredRun) -> Iterator[str]:
    if run.config.compiled and not was_compiled(run.ranks):
        yield (
            "torch.compile compiled nothing, and the model ran uncompiled; is it disabled in the "
            "environment (TORCHDYNAMO_DISABLE, TORCH_COMPILE_DISABLE)?"
        )


def _was_recompiled(run: MeasuredRun) -> Iterator[str]:
    if run.figures.recompiles:
        yield (
            f"{format_count(run.figures.recompiles, 'graph')} compiled again after the first "
            "pass: that time may be in the window; try more --warmup-steps"
        )


def _has_graph_breaks(run: MeasuredRun) -> Iterator[str]:
    breaks = (rank.compiling.graph_breaks for rank in run.ranks if rank.compiling)
    if most := max(breaks, default=0):
        yield f"{format_count(most, 'place')} where the model leaves the compiled code"


KINDS = (
    FindingKind(
        code="cpu-smoke",
        meaning="The run was on a CPU. It tests the tool, and does not predict the speed of GPUs.",
        remedy="Nothing, or use GPUs.",
        check=_on_cpu,
        table_note=f"{CPU_NOTE}.",
    ),
    FindingKind(
        code="dp-passthrough",
        meaning="DataParallel had only one device, and just called the module.",
        remedy="Use `--gpus 2` or more.",
        check=_passes_through,
    ),
    FindingKind(
        code="oversubscribed",
        meaning="Several replicas shared one GPU. This tests the code, and measures nothing.",
        remedy="Leave out `--oversubscribe`.",
        check=_shares_gpus,
    ),
    FindingKind(
        code="channels-last-lost",
        meaning=(
            "With `--channels-last` on GPUs, DataParallel has that memory format in its first "
            "replica alone: it broadcasts the weights as one flat tensor. The row is in a table of "
            "its own."
        ),
        remedy="Use ddp, or leave out `--channels-last`.",
        check=_lost_channels_last,
    ),
    FindingKind(
        code="short-lead-in",
        meaning=(
            "Batches that were loaded before the window were used up in it, so loading may look "
            "faster than it is."
        ),
        remedy="Use the `--warmup-steps` that the message names, or leave the option out.",
        check=_has_short_lead_in,
    ),
    FindingKind(
        code="no-warmup",
        meaning="There was no warm-up, so the one-time costs of the first step are in the window.",
        remedy="Use the `--warmup-steps` that the message names, or leave the option out.",
        check=_has_no_warmup,
    ),
    FindingKind(
        code="short-warmup",
        meaning=(
            f"DDP on GPUs needs {DDP_MIN_WARMUP_STEPS} steps before its steps are alike, and the "
            "warm-up was shorter."
        ),
        remedy="Use the `--warmup-steps` that the message names, or leave the option out.",
        check=_has_short_warmup,
    ),
    FindingKind(
        code="not-compiled",
        meaning="`--compile` was given, but torch compiled nothing.",
        remedy=(
            "Check whether it is disabled in the environment (`TORCHDYNAMO_DISABLE`, "
            "`TORCH_COMPILE_DISABLE`)."
        ),
        check=_was_not_compiled,
    ),
    FindingKind(
        code="recompiled",
        meaning=(
            "Parts of the model were compiled again after the first pass. That time may be in the "
            "window."
        ),
        remedy="Use more `--warmup-steps`.",
        check=_was_recompiled,
    ),
    FindingKind(
        code="graph-breaks",
        meaning="In some places the model leaves the compiled code.",
        remedy="Find the places with `TORCH_LOGS=graph_breaks`.",
        check=_has_graph_breaks,
    ),
)
