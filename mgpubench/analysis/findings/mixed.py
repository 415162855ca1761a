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
            "set in some of them?"
        ),
        remedy="Compare their sessions separately.",
    ),
    FindingKind(
        code="mixed-loaders",
        meaning=(
            "Runs that are pooled in one row had different `loader_workers`, all ranks together."
        ),
        remedy="Compare their sessions separately.",
    ),
    FindingKind(
        code="mixed-models",
        meaning=(
            "Runs of one table trained your own model in different versions (`model_digest`)."
        ),
        remedy="Compare their sessions separately.",
    ),
    FindingKind(
        code="mixed-data",
        meaning=(
            "Runs of one table loaded folders of the same name in which files differ, or the sizes "
            "of up to 200 of them (`dataset_digest`). Equal digests do not prove equal images."
        ),
        remedy="Compare their sessions separately.",
    ),
    FindingKind(
        code=UNEQUAL_LOADERS,
        meaning=(
            "With `--global-batch`, this row and the `single` row that it is divided by load "
            "equally many images per step, but had different `loader_workers`: `single` has as "
            "many as the largest `--gpus` of its own session."
        ),
        remedy="Measure both in one session.",
    ),
)
