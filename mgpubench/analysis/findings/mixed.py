"""Findings about a row whose runs, or whose baseline, differ in something that matters."""

from __future__ import annotations

from mgpubench.analysis.findings.kind import FindingKind

MIXED_IN_ROW = {"mixed-threads": "threads_per_rank", "mixed-loaders": "loader_workers"}
"""The columns that all runs of a row should have in common, by the code of the finding."""

SUPERLINEAR = "superlinear"
UNEQUAL_LOADERS = "unequal-loaders"

KINDS = (
    FindingKind(
        code="mixed-threads",
        meaning=(
            "Runs that are pooled in one row had different `threads_per_rank`. Was OMP_NUM_THREADS "
            "set for some of them?"
        ),
        remedy="Compare their sessions separately.",
    ),
    FindingKind(
        code="mixed-loaders",
        meaning=(
            "Runs that are pooled in one row had different numbers of `loader_workers`, counted "
            "over all ranks."
        ),
        remedy="Compare their sessions separately.",
    ),
    FindingKind(
        code=UNEQUAL_LOADERS,
        meaning=(
            "With `--global-batch`, this row and the `single` row that it is divided by load the "
            "same number of images per step, but had different `loader_workers`. `single` has the "
            "workers of the largest count in `--gpus` of its own session, and those of one device "
            "if it ran alone and without `--gpus`."
        ),
        remedy=(
            "Run `single` in the same session with one count in `--gpus`, or use `--data "
            "synthetic`."
        ),
    ),
    FindingKind(
        code=SUPERLINEAR,
        meaning=(
            "The speed-up is above the number of devices, and not by chance: `single` was slower "
            "than one device of this row."
        ),
        remedy="Look at `single`: its batch, its threads, other work during its runs.",
    ),
)
