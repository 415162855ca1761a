"""Findings about a row or a table whose runs, or whose rows, differ in something that matters."""

from __future__ import annotations

from mgpubench.analysis.findings.kind import FindingKind

MIXED_IN_ROW = {"mixed-threads": "threads_per_rank", "mixed-loaders": "loader_workers"}
"""The columns that all runs of a row should have in common, by the code of the finding."""

MIXED_IN_TABLE = {"mixed-models": "model_digest", "mixed-data": "dataset_digest"}
"""The same for all runs of a table."""

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
        code="mixed-models",
        meaning=(
            "Runs of one table trained different versions of your own model (`model_digest`): it "
            "was edited between them."
        ),
        remedy="Compare their sessions separately.",
    ),
    FindingKind(
        code="mixed-data",
        meaning=(
            "Runs of one table loaded folders of the same name in which the files differ, or the "
            "sizes of up to 200 of them (`dataset_digest`). Equal digests do not prove that the "
            "images are equal."
        ),
        remedy="Compare their sessions separately, or rename a folder.",
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
)
