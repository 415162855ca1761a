"""A checkpoint: one file with the state of a training after an epoch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any

import torch
from torch import Tensor

from mgpubench.errors import RequestRefused, RunFailed
from mgpubench.format import gist, message_of, shell_path
from mgpubench.results.checkpoint_files import NOT_OURS_HINT
from mgpubench.results.whole_file import write_whole
from mgpubench.training.torch_file import (
    another_checkpoint,
    is_state_dict,
    read_torch_file,
)

FORMAT = "mgpubench checkpoint"
VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    """The best evaluation of a training so far, among the epochs that have a checkpoint."""

    top1: float
    epoch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class About:
    """What a checkpoint is of."""

    model: str
    """As --model names it."""
    classes: tuple[str, ...]
    """By name, in the order of their numbers."""
    image_size: int
    epoch: int
    """Epochs behind it."""
    best: Best | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the training that JSON can hold."""
    dataset_digest: str = ""
    """The digest of the images that it was trained on; empty if it is unknown."""

    def to_json(self) -> str:
        """All of it as JSON text."""
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> About:
        """Parse it; keys that are not known are left out.

        Raises:
            ValueError: if it does not have the form that `to_json` gives it.
        """
        try:
            found = json.loads(text)
            best = found["best"]
            about = cls(
                model=found["model"],
                classes=tuple(_checked(found["classes"], list)),
                image_size=found["image_size"],
                epoch=found["epoch"],
                best=Best(top1=best["top1"], epoch=best["epoch"]) if best is not None else None,
                options=found["options"],
                dataset_digest=found.get("dataset_digest", ""),
            )
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        about._check()
        return about

    def _check(self) -> None:
        for text in (self.model, self.dataset_digest, *self.classes):
            _checked(text, str)
        for number in (self.image_size, self.epoch):
            _checked(number, int)
        if self.best is not None:
            _checked(self.best.epoch, int)
            _checked(self.best.top1, float | int)
        _checked(self.options, dict)


def _checked(value: Any, kind: type | UnionType) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{value!r} has the wrong type")
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """What a checkpoint holds."""

    about: About
    model: Mapping[str, Any]
    """State dict of the model itself, without the wrapper of a technique."""
    optimizer: Mapping[str, Any]
    """By parameter name, as `optimizer_by_name` gives it."""
    scaler: Mapping[str, Any] | None = None
    """State dict of the GradScaler; None without one."""


def save(path: Path, content: Content) -> None:
    """Write a checkpoint, whole and durable or not at all.

    Raises:
        RunFailed: if a weight is not finite, or if the disk refuses.
    """
    _refuse_not_finite(path, content)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "about": content.about.to_json(),
        "model": content.model,
        "optimizer": content.optimizer,
        "scaler": content.scaler,
    }
    try:
        # Torch gets an open file: it would open a name by itself, and say less about errors.
        with write_whole(path) as file:
            torch.save(document, file)
    except (OSError, RuntimeError) as error:
        cause = _os_error_behind(error)
        if cause is None:
            raise
        raise RunFailed(
            f"{path} cannot be written: {cause.strerror or cause}",
            "Make room for it. Checkpoints that were written before are kept; go on from the last "
            "one with --resume.",
        ) from error


def _os_error_behind(error: BaseException | None) -> OSError | None:
    """Torch reports `unexpected pos` where the write to the file failed, and hides why."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def _refuse_not_finite(path: Path, content: Content) -> None:
    trained = {name for group in content.optimizer["groups"] for name in group["params"]}
    for name, tensor in content.model.items():
        if isinstance(tensor, Tensor) and not _is_fine(tensor, name in trained):
            raise RunFailed(
                f"{path} is not written: {name} has values that are not finite",
                "Go on from an earlier checkpoint with a smaller --lr, or with --clip-grad-norm.",
            )


def _is_fine(tensor: Tensor, is_trained: bool) -> bool:
    """True if all values are finite. Untrained ones may be infinite, as attention masks are."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    # One pass over the tensor. The sum of finite values may overflow: only then look at each.
    if bool(torch.isfinite(tensor.sum())):
        return True
    return not bool((~torch.isfinite(tensor) if is_trained else torch.isnan(tensor)).any())


def load(path: Path) -> Content:
    """Read a checkpoint, and check all of it. The tensors are mapped from the file: copy them soon.

    Raises:
        RequestRefused: if it is not an undamaged checkpoint of this version.
    """
    document = read_torch_file(path, zip_only=True)
    content = parse(path, document)
    if content is not None:
        return content
    if is_state_dict(document):
        raise RequestRefused(
            f"{path} holds only weights, and is not a checkpoint of mgpubench",
            f"To begin a training with them: --pretrained {shell_path(path)}",
        )
    raise RequestRefused(f"{path} is not a checkpoint of mgpubench", NOT_OURS_HINT)


def read_about(path: Path) -> About:
    """What a checkpoint is of, after all of it was checked.

    Raises:
        RequestRefused: if it is not an undamaged checkpoint of this version.
    """
    return load(path).about


def parse(path: Path, document: object) -> Content | None:
    """The content of a file that was read; None if the file is not a checkpoint of mgpubench.

    Raises:
        RequestRefused: if it is a checkpoint of another version, or is not complete.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return None
    version = document.get("version")
    if not isinstance(version, int) or version != VERSION:
        raise RequestRefused(
            f"{path} is a checkpoint of version {version}, and this mgpubench reads version "
            f"{VERSION}",
            "Use the mgpubench that wrote it, or a newer one.",
        )
    try:
        return _content(document)
    except (ValueError, KeyError) as error:
        fault = f"its content is not as mgpubench writes it ({gist(message_of(error))})"
        raise RequestRefused(f"{path} is damaged: {fault}", another_checkpoint(path)) from error


def _content(document: Mapping[str, Any]) -> Content:
    kinds = {"about": str, "model": dict, "optimizer": dict, "scaler": dict | None}
    for name, kind in kinds.items():
        if not isinstance(document[name], kind):
            raise ValueError(f"{name} is of type {type(document[name]).__name__}")
    return Content(
        about=About.from_json(document["about"]),
        model=document["model"],
        optimizer=document["optimizer"],
        scaler=document["scaler"],
    )
