"""Findings about data: the loader, the images and the loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mgpubench.analysis.findings.kind import FindingKind, MeasuredRun
from mgpubench.analysis.metrics import data_wait_share, image_paths, slowest_rank
from mgpubench.format import format_count, format_milliseconds, format_percent, shown_path

DATA_WAIT_LIMIT = 0.05
"""Above this share of the window the loader, and not the mode, is what is measured."""

LOADER_SHARE = 0.9
"""If a loader alone needs less than this share of a step, something else is slower."""

MAX_PATHS = 3
"""So many paths are named in a finding. The others are counted."""


def _waits_for_data(run: MeasuredRun) -> Iterator[str]:
    share = data_wait_share(run.figures.data_wait_s, run.figures.window_s)
    if share is None or share <= DATA_WAIT_LIMIT:
        return
    slowest = slowest_rank(run.ranks)
    step_s, loader_s = slowest.window_s / run.config.steps, slowest.loader_step_s
    alone = ""
    if loader_s is not None:
        if loader_s < LOADER_SHARE * step_s:
            return  # only the host waited, and it was ahead of its GPUs
        times = f"{format_milliseconds(loader_s)} ms for a step of {format_milliseconds(step_s)} ms"
        alone = f", and the loader alone takes {times},"
    yield (
        f"{format_percent(share)} of the window was spent waiting for data (limit "
        f"{format_percent(DATA_WAIT_LIMIT)}){alone} with "
        f"{format_count(run.config.workers_per_device, 'loader worker')} per device; try another "
        "--workers-per-gpu (in total as many as cores), smaller files or a faster disk; --data "
        "synthetic leaves loading out"
    )


def _has_bad_images(run: MeasuredRun) -> Iterator[str]:
    if bad := image_paths(run.ranks, "bad"):
        yield (
            f"{format_count(len(bad), 'image')} could not be read and had to be replaced by "
            f"others: {_some(bad)}"
        )


def _has_huge_images(run: MeasuredRun) -> Iterator[str]:
    if huge := image_paths(run.ranks, "huge"):
        yield (
            f"{format_count(len(huge), 'image')} of more than 89 million pixels, which take long "
            f"to decode: {_some(huge)}"
        )


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MAX_PATHS} more" if len(paths) > MAX_PATHS else ""
    return ", ".join(map(shown_path, paths[:MAX_PATHS])) + more


def _has_no_finite_loss(run: MeasuredRun) -> Iterator[str]:
    bad = [rank for rank in run.ranks if not math.isfinite(rank.final_loss)]
    if bad:
        yield (
            f"the loss of rank {bad[0].rank} ended as {bad[0].final_loss}: the speed is measured, "
            "but the model does not learn"
        )


KINDS = (
    FindingKind(
        code="loader-bound",
        meaning=(
            f"More than {DATA_WAIT_LIMIT * 100:.0f} % of the window was spent waiting for data. "
            "On GPUs, whose host runs ahead of them, the loader alone is also no faster than the "
            "run. The figure measures the loader, not the mode."
        ),
        remedy=(
            "Try another `--workers-per-gpu`, smaller files, a faster disk, or `--data synthetic`."
        ),
        check=_waits_for_data,
    ),
    FindingKind(
        code="bad-images",
        meaning=("Some images could not be read. Others were used instead (`--skip-bad-images`)."),
        remedy="Repair or remove them.",
        check=_has_bad_images,
    ),
    FindingKind(
        code="huge-images",
        meaning="Some images have more than 89 million pixels, and take long to decode.",
        remedy="Make them smaller.",
        check=_has_huge_images,
    ),
    FindingKind(
        code="loss-not-finite",
        meaning=(
            "The loss ended as NaN or infinity. The speed is measured, but the model does not "
            "learn."
        ),
        remedy="Nothing, if only the speed matters.",
        check=_has_no_finite_loss,
    ),
)
