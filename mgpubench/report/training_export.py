"""Trainings for programs: JSON has an object for each training, CSV a row for each epoch."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from mgpubench.analysis.training_groups import TRAINING_KEY
from mgpubench.analysis.trainings import TrainingRow
from mgpubench.report.export import or_null
from mgpubench.results.csv_format import write_rows
from mgpubench.results.training import EpochRecord

OF_PLACE = ("mode", "effective_mode", "num_devices")
"""Columns of an epoch that are those of its training too, unless it went on elsewhere."""

OF_EPOCH = (
    *("epoch", *OF_PLACE, "sitting", "samples", "train_s", "throughput_samples_per_s"),
    *("train_loss", "lr", "eval_samples", "top1", "top5", "eval_s", "num_nodes"),
)
"""Columns of epochs.csv that are repeated here."""


def trainings_to_json(rows: Sequence[TrainingRow], to_top1: float | None) -> str:
    """A list with one object for each training, and in it one for each epoch."""
    objects = [
        {
            "group": {name: or_null(value) for name, value in asdict(row.group).items()},
            **_figures(row, to_top1),
            "versus_baseline": _versus(row),
            "epochs": [
                {name: or_null(getattr(epoch, name)) for name in OF_EPOCH} for epoch in row.epochs
            ],
        }
        for row in rows
    ]
    return json.dumps(objects, indent=2, ensure_ascii=False, allow_nan=False)


def trainings_to_csv(rows: Sequence[TrainingRow], to_top1: float | None) -> str:
    """The same fields in a row for each epoch; what is of the whole training is repeated."""
    buffer = io.StringIO()
    columns = _csv_columns(to_top1)
    write_rows(buffer, [columns])
    write_rows(
        buffer,
        ([value(row, epoch) for value in columns.values()] for row in rows for epoch in row.epochs),
    )
    return buffer.getvalue()


def _figures(row: TrainingRow, to_top1: float | None) -> dict[str, object]:
    """What is of the whole training."""
    facts = row.training.facts
    return {
        "training": row.session_id,
        **_place(row),
        "options": facts.options,
        "planned_epochs": facts.epochs,
        "lost_epochs": row.training.lost_epochs,
        "train_s": row.train_s,
        "throughput_samples_per_s": row.throughput_samples_per_s,
        "best_top1": row.best.top1 if row.best else None,
        "best_epoch": row.best.epoch if row.best else None,
        "to_top1": to_top1,
        "seconds_to_accuracy": row.seconds_to_accuracy,
    }


def _place(row: TrainingRow) -> dict[str, object]:
    """Mode and devices; null if the training went on elsewhere."""
    place = row.places[0] if len(row.places) == 1 else (None,) * len(OF_PLACE)
    return dict(zip(OF_PLACE, place, strict=True))


def _versus(row: TrainingRow) -> dict[str, object] | None:
    if row.versus is None:
        return None
    return {
        "baseline": or_null(row.versus.baseline),
        "training": or_null(row.versus.session_id),
        "ratio": row.versus.ratio,
        "epochs": row.versus.epochs,
    }


Value = Callable[[TrainingRow, EpochRecord], Any]


def _csv_columns(to_top1: float | None) -> dict[str, Value]:
    """The columns in their order, and the value of each for an epoch of a training."""

    def of_group(name: str) -> Value:
        return lambda row, epoch: getattr(row.group, name)

    def of_training(name: str) -> Value:
        return lambda row, epoch: _figures(row, to_top1)[name]

    def of_versus(name: str) -> Value:
        return lambda row, epoch: (_versus(row) or {}).get(name)

    def of_epoch(name: str) -> Value:
        return lambda row, epoch: getattr(epoch, name)

    return {
        **{f"group_{name}": of_group(name) for name in TRAINING_KEY},
        "training": of_training("training"),
        "options": of_training("options"),
        **{
            f"training_{name}": of_training(name)
            for name in ("planned_epochs", "lost_epochs", "train_s", "throughput_samples_per_s")
        },
        **{
            name: of_training(name)
            for name in ("best_top1", "best_epoch", "to_top1", "seconds_to_accuracy")
        },
        "versus_baseline": of_versus("baseline"),
        **{f"versus_{name}": of_versus(name) for name in ("training", "ratio", "epochs")},
        **{name: of_epoch(name) for name in OF_EPOCH},
    }
