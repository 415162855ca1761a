"""The sections of a comparison: a title, a table and sentences for each group of equal work.

They are the same on a screen and in Markdown. Text from result files goes through `plain`: an
escape code in the name of a model must not reach a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from mgpubench.analysis.groups import FIRST_REPLICA, GROUP_KEY, Group, hides_gpus
from mgpubench.analysis.row import Row
from mgpubench.config.types import DEFAULT_OPTIMIZER
from mgpubench.format import UNKNOWN, plain
from mgpubench.report.columns import Column, comparison_columns
from mgpubench.report.commands import Folders
from mgpubench.report.sentences import NO_FOLDERS, sentences_about
from mgpubench.results.csv_format import format_cell

MAX_VALUES = 4
"""So many values of a field that differs are shown. The others are counted."""

HIDDEN_GPUS = (
    "a machine is known by its visible GPUs, so a part of them is another machine, and is not "
    "compared with the whole: leave CUDA_VISIBLE_DEVICES as it is, and choose with --gpus"
)
"""Why a column may be empty although the same computer made all runs."""

_IN_TITLE = (
    *("model", "data", "image_size", "precision", "scaling", "batch_per_device", "global_batch"),
    *("optimizer", "accumulate", "channels_last", "compiled", "device_models", "variants"),
)


@dataclass(frozen=True, slots=True)
class Section:
    """One group of equal work: its title, its table, and what the table says."""

    title: str
    columns: list[Column]
    sentences: list[str]


def describe(rows: Sequence[Row], folders: Folders = NO_FOLDERS) -> list[Section]:
    """The sections of a comparison, one for each group of equal work, in the order of the rows."""
    groups = [(group, list(members)) for group, members in groupby(rows, lambda row: row.group)]
    differing = differing_fields([group for group, _ in groups], GROUP_KEY)
    beyond_title = [name for name in differing if name not in _IN_TITLE]
    sections = [
        Section(
            _title(group, beyond_title),
            comparison_columns(members),
            sentences_about(members, folders),
        )
        for group, members in groups
    ]
    if "machine" in differing and hides_gpus(group for group, _ in groups):
        sections[-1].sentences.append(HIDDEN_GPUS)
    if differing:
        tables = f"{len(sections)} tables"
        sections[-1].sentences.append(different_work(tables, differing))
    return sections


def different_work(what: str, differing: Mapping[str, str]) -> str:
    """Why rows of different groups are not compared, with the fields in which they differ."""
    return f"The {what} show different work, and are not divided by each other: " + (
        ", ".join(plain(f"{name} ({values})") for name, values in differing.items())
    )


def differing_fields(groups: Sequence[object], names: Sequence[str]) -> dict[str, str]:
    """The fields in which groups of equal work differ, with their values."""
    differing = {}
    for name in names:
        values = dict.fromkeys(format_cell(getattr(group, name)) or UNKNOWN for group in groups)
        if len(values) > 1:
            shown = list(values)[:MAX_VALUES]
            more = [f"and {len(values) - MAX_VALUES} more"] if len(values) > MAX_VALUES else []
            differing[name] = " / ".join(shown + more)
    return differing


def _title(group: Group, differing: Sequence[str]) -> str:
    """The work in a few words, with all fields in which this group differs from the others."""
    parts = [
        group.model,
        group.data and f"{group.data} data",
        group.image_size and f"{group.image_size} px",
        group.precision,
        group.optimizer if group.optimizer != DEFAULT_OPTIMIZER else "",
        "channels-last" if group.channels_last is True else "",
        f"channels-last in the {group.channels_last}"
        if group.channels_last == FIRST_REPLICA
        else "",
        "compiled" if group.compiled else "",
        f"variants {group.variants}" if group.variants else "",
        group.batch_per_device and f"batch {group.batch_per_device} per device",
        group.global_batch and f"batch {group.global_batch} global",
        f"in {group.accumulate} micro-batches" if (group.accumulate or 1) > 1 else "",
        group.device_models,
        *(f"{name} {format_cell(getattr(group, name)) or UNKNOWN}" for name in differing),
    ]
    return plain(", ".join(str(part) for part in parts if part)) or "unknown work"
