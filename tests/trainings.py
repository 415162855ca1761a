"""Folders of trainings that are written without training anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.train_request import LOG_EVERY, TrainOptions
from mgpubench.machine.host import assumed_machine
from mgpubench.results.csv_format import append_records
from mgpubench.results.session_folder import open_session
from mgpubench.results.training import EPOCHS_CSV, TRAINING_FILES, EpochRecord
from mgpubench.session.document import called_part

WORK = {field.name for field in fields(Request)}
SECONDS = (4.0, 2.0, 2.0)
TOP1 = (0.5, 0.75, 0.7)


def epoch(number: int, train_s: float = 2.0, **changes: Any) -> EpochRecord:
    """One epoch of 80 images on one GPU, with changes."""
    values: dict[str, Any] = {
        "schema_version": 1,
        "epoch": number,
        "mode": "single",
        "effective_mode": "single",
        "num_devices": 1,
        "global_batch": 8,
        "samples": 80,
        "dropped_images": 0,
        "train_s": float(train_s),
        "throughput_samples_per_s": 80 / train_s,
        "train_loss": 1 / number,
        "lr": 0.01,
        "device_type": "cuda",
        "device_names": "1x NVIDIA X",
        "machine": "aaaa1111",
        "torch_version": "2.14.1",
        "loader_workers": 4,
    }
    if changes.get("num_devices"):
        values["device_names"] = f"{changes['num_devices']}x NVIDIA X"
    return EpochRecord(**{**values, **changes})


def epochs(*seconds: float, top1: Sequence[float] = TOP1, **changes: Any) -> list[EpochRecord]:
    """Epochs from the first on, of so many seconds each."""
    return [
        epoch(number, train_s, **{"top1": accuracy, "eval_samples": 20, **changes})
        for number, (train_s, accuracy) in enumerate(zip(seconds, top1, strict=True), start=1)
    ]


def in_mode(mode: str, devices: int, *seconds: float, **changes: Any) -> list[EpochRecord]:
    """Epochs in a mode."""
    return epochs(*seconds, mode=mode, effective_mode=mode, num_devices=devices, **changes)


def write_training(out: Path, records: Sequence[EpochRecord], **changes: Any) -> Path:
    """The folder of a training with these epochs; `changes` are options of work or training."""
    work = {name: changes.pop(name) for name in list(changes) if name in WORK}
    resumed_from = changes.pop("resumed_from", None)
    request = Request(
        **{
            **{"modes": ("ddp",), "device": "cpu", "gpus": (2,), "model": "mlp", "data": "photos"},
            **{"global_batch": 8, "rounds": 1, "log_every": LOG_EVERY, **work},
        }
    )
    machine = assumed_machine(0)
    evaluation = {"digest": "ef", "name": "val"} if changes.get("eval_data") else None
    facts = {"num_parameters": 10, "parameter_bytes": 40, "num_classes": 2, "digest": ""}
    document = {
        **called_part(request, make_plan(request, machine, {"photos": 2}), ["train"]),
        "options": asdict(TrainOptions(**{"epochs": 3, **changes})),
        "resumed_from": resumed_from,
        "machine": asdict(machine),
        "environment": {},
        "datasets": [{"samples": 80, "classes": 2, "digest": "ab", "name": "photos"}],
        "evaluation": evaluation,
        "models": {"mlp": facts},
    }
    with open_session(out, document, datetime.now(UTC), TRAINING_FILES) as session:
        append_records(session.folder / EPOCHS_CSV, TRAINING_FILES[EPOCHS_CSV], records)
        return session.folder
