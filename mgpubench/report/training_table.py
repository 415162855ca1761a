"""The sections about trainings: their epochs side by side, and their figures as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

from mgpubench.analysis.training_groups import CHANGED, TRAINING_KEY, TrainingGroup
from mgpubench.analysis.trainings import TrainingRow
from mgpubench.config.types import DEFAULT_OPTIMIZER
from mgpubench.format import (
    UNKNOWN,
    format_loss,
    format_percent,
    format_rate,
    format_ratio,
    format_seconds,
    plain,
)
from mgpubench.report.columns import Column, without_empty
from mgpubench.report.sections import Section, different_work, differing_fields
from mgpubench.report.training_sentences import sentences_about, training_place
from mgpubench.results.csv_format import format_cell
from mgpubench.results.training import EpochRecord

_IN_TITLE = (
    *("model", "data", "image_size", "precision", "optimizer", "lr", "global_batch", "accumulate"),
    *("channels_last", "compiled", "device_models"),
)

Cell = Callable[[EpochRecord], str]


def describe_trainings(rows: Sequence[TrainingRow], to_top1: float | None) -> list[Section]:
    """Two sections for each group of equal work: its epochs, and its trainings as a whole."""
    groups = [(group, list(members)) for group, members in groupby(rows, lambda row: row.group)]
    differing = differing_fields([group for group, _ in groups], TRAINING_KEY)
    beyond_title = [name for name in differing if name not in _IN_TITLE]
    sections = [
        section
        for group, members in groups
        for section in (
            Section(_title(group, beyond_title), epoch_columns(members), []),
            Section(
                "whole trainings",
                training_columns(members, to_top1),
                sentences_about(members, to_top1),
            ),
        )
    ]
    if differing:
        sections[-1].sentences.append(different_work(f"{len(groups)} groups", differing))
    return sections


def epoch_columns(rows: Sequence[TrainingRow]) -> list[Column]:
    """A row for each epoch, and in it the figures of each training."""
    numbers = sorted({epoch.epoch for row in rows for epoch in row.epochs})
    columns = [Column("epoch", list(map(str, numbers)))]
    for name, row in zip(_names(rows), rows, strict=True):
        by_number = {epoch.epoch: epoch for epoch in row.epochs}
        columns += [
            Column(
                f"{name}\n{header}",
                [cell(by_number[each]) if each in by_number else UNKNOWN for each in numbers],
                is_optional=is_optional,
            )
            for header, cell, is_optional in _EPOCH_CELLS
        ]
    return without_empty(columns)


_EPOCH_CELLS: tuple[tuple[str, Cell, bool], ...] = (
    ("samples/s", lambda epoch: format_rate(epoch.throughput_samples_per_s), False),
    ("loss", lambda epoch: format_loss(epoch.train_loss), False),
    ("top-1", lambda epoch: format_percent(epoch.top1), True),
    ("top-5", lambda epoch: format_percent(epoch.top5), True),
)


def training_columns(rows: Sequence[TrainingRow], to_top1: float | None) -> list[Column]:
    """A row for each training."""
    baseline = next((row.versus.baseline for row in rows if row.versus), "") or "baseline"
    columns = [
        Column("mode", [_modes(row) for row in rows], is_number=False),
        Column("devices", [_devices(row) for row in rows]),
        Column("epochs", [_epochs(row) for row in rows]),
        Column("seconds of\ntraining", [format_seconds(row.train_s) for row in rows]),
        Column("samples/s", [format_rate(row.throughput_samples_per_s) for row in rows]),
        Column(f"ratio to\n{plain(baseline)}", [_ratio(row) for row in rows]),
        Column("best\ntop-1", [_best(row) for row in rows], is_optional=True),
        Column("in\nepoch", [_best_number(row) for row in rows], is_optional=True),
    ]
    if to_top1 is not None:
        cells = [format_seconds(row.seconds_to_accuracy) for row in rows]
        columns.append(Column(f"seconds to\n{to_top1 * 100:g} % top-1", cells))
    columns.append(Column("training", [plain(row.session_id) for row in rows], is_number=False))
    return without_empty(columns)


def _names(rows: Sequence[TrainingRow]) -> list[str]:
    """A short name for each training, with the end of its id if the name is not unique."""
    names = [training_place(row) for row in rows]
    counts = Counter(names)
    return [
        name if counts[name] == 1 else f"{name} {plain(row.session_id.rpartition('-')[2])}"
        for name, row in zip(names, rows, strict=True)
    ]


def _modes(row: TrainingRow) -> str:
    modes = [
        mode if effective_mode == mode else f"{mode} ({effective_mode})"
        for mode, effective_mode, _ in row.places
    ]
    options = row.training.facts.options.split(";")
    return plain(" ".join([CHANGED.join(dict.fromkeys(modes)), *options]).strip())


def _devices(row: TrainingRow) -> str:
    return CHANGED.join(dict.fromkeys(str(devices) for _, _, devices in row.places))


def _epochs(row: TrainingRow) -> str:
    """How many there are, and how many were planned if these are more."""
    last, planned = row.epochs[-1].epoch, row.training.facts.epochs
    count = str(len(row.epochs))
    return f"{count} of {planned}" if last < planned else count


def _ratio(row: TrainingRow) -> str:
    return "baseline" if row.versus is None else format_ratio(row.versus.ratio)


def _best(row: TrainingRow) -> str:
    return format_percent(row.best.top1 if row.best else None)


def _best_number(row: TrainingRow) -> str:
    return str(row.best.epoch) if row.best else UNKNOWN


def _title(group: TrainingGroup, differing: Sequence[str]) -> str:
    """The work in a few words, with all fields in which this group differs from the others."""
    parts = [
        group.model,
        f"{group.data} data",
        group.image_size and f"{group.image_size} px",
        group.precision,
        group.optimizer if group.optimizer != DEFAULT_OPTIMIZER else "",
        f"lr {group.lr:g}",
        "channels-last" if group.channels_last else "",
        "compiled" if group.compiled else "",
        f"batch {group.global_batch} global",
        f"in {group.accumulate} micro-batches" if group.accumulate > 1 else "",
        group.device_models,
        *(f"{name} {format_cell(getattr(group, name)) or UNKNOWN}" for name in differing),
    ]
    return plain(", ".join(str(part) for part in parts if part))
