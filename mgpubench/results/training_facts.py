"""What session.json says about a training: its work, as far as a resume cannot change it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path, PurePath
from typing import Any

from mgpubench.config.run_config import DdpOptions, default_backend, option_text
from mgpubench.config.train_request import LOG_EVERY
from mgpubench.config.types import IMAGE_FOLDER
from mgpubench.errors import ResultsUnreadable
from mgpubench.results.checkpoint_files import CHECKPOINTS
from mgpubench.results.schema import SCHEMA_VERSION
from mgpubench.results.session_folder import DIGEST, SESSION_JSON, digest_of

RANDOM_WEIGHTS = "random"
TORCHVISION_WEIGHTS = "torchvision's"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingFacts:
    """What is trained, and how. Unknown is None or empty."""

    session_id: str
    model: str
    num_parameters: int | None
    model_digest: str
    data: str
    """As in runs.csv."""
    dataset_digest: str
    evaluation: str
    """`split 0.9`, or `folder NAME`; empty without evaluation."""
    evaluation_digest: str
    """Of the images of that folder."""
    image_size: int | None
    precision: str
    optimizer: str
    lr: float
    momentum: float
    weight_decay: float
    nesterov: bool
    lr_schedule: str
    warmup_epochs: float
    label_smoothing: float
    clip_grad_norm: float | None
    accumulate: int
    augment: bool
    skip_bad_images: bool
    weights: str
    """What it began with: `random`, `torchvision's`, `file NAME` or `checkpoint TRAINING/NAME`."""
    seed: int
    deterministic: bool
    channels_last: bool
    compiled: bool
    eval_every: int
    epochs: int
    """Planned when it began."""
    options: str
    """Options that are not at their defaults, and are not among those above."""
    cuda_version: str
    nccl_version: str
    driver_version: str
    python_version: str
    environment: tuple[tuple[str, str], ...]
    """Variables that can change how fast training is."""

    @property
    def is_from_checkpoint(self) -> bool:
        """True if its first epochs are those of another training."""
        return self.weights.startswith("checkpoint ")


def read_facts(folder: Path) -> TrainingFacts:
    """Read the session.json of a training.

    Raises:
        ResultsUnreadable: if there is none, if it was edited, or if it is not that of a training.
    """
    path = folder / SESSION_JSON
    document = _read(path)
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ResultsUnreadable(
            f"{path}: unknown schema_version {version}; this mgpubench reads {SCHEMA_VERSION}",
            "A newer mgpubench wrote this file; update this one.",
        )
    if document.pop(DIGEST, "") != digest_of(document):
        raise ResultsUnreadable(
            f"{path} is not as mgpubench wrote it, so what was trained is unknown",
            "Undo what was edited in it.",
        )
    try:
        return _facts(document)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise ResultsUnreadable(f"{path} is not that of a training") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "it is not JSON"
        raise ResultsUnreadable(
            f"{path} cannot be read: {reason}", "Without it, what was trained is unknown."
        ) from error
    if not isinstance(document, dict):
        raise ResultsUnreadable(f"{path} is not that of a training")
    return document


def _facts(document: Mapping[str, Any]) -> TrainingFacts:
    run, recipe = document["plan"][0], document["options"]
    model, machine = document["models"][run["model"]], document["machine"]
    (dataset,) = document["datasets"]
    return TrainingFacts(
        session_id=document["session_id"],
        num_parameters=model["num_parameters"],
        model_digest=model["digest"],
        data=f"{IMAGE_FOLDER}{dataset['name']}",
        dataset_digest=dataset["digest"],
        evaluation=_evaluation(recipe),
        evaluation_digest=(document["evaluation"] or {"digest": ""})["digest"],
        weights=_weights(recipe["pretrained"], document["resumed_from"]),
        options=_options(run),
        environment=tuple(sorted(document["environment"].items())),
        **{name: run[name] for name in _OF_RUN},
        **{name: recipe[name] for name in _OF_RECIPE},
        **{name: machine[name] for name in _OF_MACHINE},
    )


_OF_RUN = (
    *("model", "image_size", "precision", "optimizer", "accumulate", "skip_bad_images", "seed"),
    *("channels_last", "compiled"),
)
_OF_RECIPE = (
    *("lr", "momentum", "weight_decay", "nesterov", "lr_schedule", "warmup_epochs"),
    *("label_smoothing", "clip_grad_norm", "augment", "deterministic", "eval_every", "epochs"),
)
_OF_MACHINE = ("cuda_version", "nccl_version", "driver_version", "python_version")


def _evaluation(recipe: Mapping[str, Any]) -> str:
    if recipe["split"] is not None:
        return f"split {recipe['split']:g}"
    return f"folder {PurePath(recipe['eval_data']).name}" if recipe["eval_data"] else ""


def _weights(pretrained: str | None, resumed_from: str | None) -> str:
    if resumed_from is not None:
        path = PurePath(resumed_from)
        training = path.parts[-3:-2] if path.parent.name == CHECKPOINTS else ()
        return f"checkpoint {'/'.join((*training, path.name))}"
    if pretrained is None:
        return RANDOM_WEIGHTS
    return f"file {PurePath(pretrained).name}" if pretrained else TORCHVISION_WEIGHTS


def _options(run: Mapping[str, Any]) -> str:
    """As in the column `options` of runs.csv, but for a --log-every that is a training's own."""
    defaults = {option.name: option.default for option in fields(DdpOptions)}
    changed = {name: value for name, value in run["ddp"].items() if value != defaults.get(name)}
    if run["cudnn_benchmark"]:
        changed["cudnn_benchmark"] = True
    if run["backend"] not in ("", default_backend(run["effective_mode"], run["device_type"])):
        changed["backend"] = run["backend"]
    if run["log_every"] != LOG_EVERY:
        changed["log_every"] = run["log_every"]
    return ";".join(f"{name}={option_text(value)}" for name, value in sorted(changed.items()))
