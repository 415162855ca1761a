"""Trained weights to begin with: those of a file, or torchvision's own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mgpubench.config.types import BUILTIN_MODELS, is_own_model
from mgpubench.errors import BenchError, RequestRefused
from mgpubench.training.checkpoint import parse
from mgpubench.training.models.by_name import make_module
from mgpubench.training.technique import itself
from mgpubench.training.torch_file import is_state_dict, read_torch_file
from mgpubench.training.weights import load_into, shape_of

BATCH_COUNT = ".num_batches_tracked"
"""Buffers of BatchNorm that older files lack, and that training does not use."""

OTHER_SCALE = ("googlenet", "inception_v3")
"""Models whose weights at torchvision expect images on another scale than all others."""

OTHER_SCALE_NOTICE = (
    "'s weights are for images on another scale, which the first epochs must make up for"
)

_HASH = re.compile(r"-([0-9a-f]{8,})\.pth$")
"""The beginning of the SHA-256 in the name of a file of torchvision."""

_OLD_DENSENET = re.compile(r"(.*denselayer\d+\.(?:norm|conv))\.([12]\..*)")
"""Names in torchvision's own files of DenseNets: `norm.1` is now `norm1`."""


def check_pretrained(name: str, num_classes: int, file: Path | None) -> tuple[str, ...]:
    """Load the weights into a model that is not used, before anything else is done.

    Returns notices for the user.

    Raises:
        RequestRefused: if there are no such weights, or if they do not fit.
    """
    return load_pretrained(make_module(name, num_classes), name, num_classes, file)


def load_pretrained(
    model: nn.Module,
    name: str,
    num_classes: int,
    file: Path | None,
    part_of: Callable[[Tensor, Tensor], Tensor] = itself,
) -> tuple[str, ...]:
    """Let a model begin with trained weights. Nothing is downloaded.

    Only tensors whose shape depends on the number of classes may stay random.

    Args:
        model: the model, without any wrapper.
        name: as --model names it.
        num_classes: that it was made for.
        file: a checkpoint, or a state dict; None for torchvision's own weights.
        part_of: gives the part of a tensor that a sharded model keeps.

    Returns:
        Notices for the user.

    Raises:
        RequestRefused: if there are no such weights, or if they do not fit.
    """
    path = file or find_torchvision_weights(name)
    state = _with_todays_names(_read_weights(path), model)
    own = model.state_dict()
    may_be_new = _depend_on_classes(name, num_classes, own)
    new = load_into(model, state, source=path, may_be_new=may_be_new, part_of=part_of)
    notices = [f"--pretrained: the weights are those of {path}"]
    if new:
        listed = ", ".join(f"{each} ({shape_of(own[each])})" for each in new)
        notices.append(
            f"--pretrained: random at the beginning, for {num_classes} classes: {listed}"
        )
    if file is None and name in OTHER_SCALE:
        notices.append(f"--pretrained: {name}{OTHER_SCALE_NOTICE}")
    return tuple(notices)


def _read_weights(path: Path) -> Mapping[str, Any]:
    document = read_torch_file(path, zip_only=False)
    if (content := parse(path, document)) is not None:
        return content.model
    if not is_state_dict(document):
        raise RequestRefused(
            f"{path} holds no weights: it is neither a checkpoint of mgpubench nor a state dict",
            "torch.save(model.state_dict(), file) writes a state dict.",
        )
    assert isinstance(document, Mapping)  # is_state_dict
    return document


def _with_todays_names(state: Mapping[str, Any], model: nn.Module) -> dict[str, Any]:
    """The same weights by the names that they have in the model today."""
    # DataParallel and DDP put this before all names.
    prefix = "module." if all(name.startswith("module.") for name in state) else ""
    named = {}
    for name, tensor in state.items():
        old = _OLD_DENSENET.fullmatch(name)
        named[(old.group(1) + old.group(2) if old else name).removeprefix(prefix)] = tensor
    for name, tensor in model.state_dict().items():
        if name.endswith(BATCH_COUNT):
            named.setdefault(name, torch.zeros_like(tensor))
    return named


def _depend_on_classes(name: str, num_classes: int, own: Mapping[str, Any]) -> frozenset[str]:
    """Names of the tensors whose shape depends on the number of classes."""
    if is_own_model(name):
        return frozenset()  # it decides by itself how many it has
    other = _make_on_meta(name, num_classes + 1).state_dict()
    return frozenset(each for each in own if shape_of(own[each]) != shape_of(other.get(each)))


def _make_on_meta(name: str, num_classes: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        try:
            with torch.device("meta"):
                return make_module(name, num_classes)
        except BenchError:
            raise
        # Some constructors look at numbers, which tensors on the meta device do not have.
        except Exception:
            return make_module(name, num_classes)


def find_torchvision_weights(name: str) -> Path:
    """The file with torchvision's weights of a model in torch's cache.

    The default weights come first, and then others of the same model.

    Raises:
        RequestRefused: if there are none, or if the file is damaged.
    """
    if name in BUILTIN_MODELS or is_own_model(name):
        raise RequestRefused(
            f"--pretrained needs a file for --model {name}: torchvision has no weights for it",
            "Name a checkpoint or a state dict: --pretrained FILE.",
        )
    from torchvision.models import get_model_weights

    weights = get_model_weights(name)
    urls = [weights.DEFAULT.url, *(each.url for each in weights)]
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    paths: list[Path] = [folder / url.rpartition("/")[2] for url in urls]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise RequestRefused(
            f"torchvision's weights of {name} are not on this machine: {paths[0]} does not exist",
            f"mgpubench downloads nothing. Put the file there yourself, from {urls[0]}",
        )
    _check_hash(path)
    return path


def _check_hash(path: Path) -> None:
    """Compare a file with the hash in its name: older files have no checksums inside."""
    expected = _HASH.search(path.name)
    if expected is None:
        return
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not found.startswith(expected.group(1)):
        raise RequestRefused(
            f"{path} is damaged: its SHA-256 does not begin with {expected.group(1)}",
            "Remove it, and put it there again.",
        )
