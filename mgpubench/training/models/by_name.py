"""Models by name: built-in ones, torchvision's, and the user's own.

All start from random weights, which train as fast as others, so that nothing is downloaded.
"""

from __future__ import annotations

import difflib

from torch import nn

from mgpubench.config.types import BUILTIN_MODELS, is_own_model
from mgpubench.errors import RequestRefused, TorchUnavailable
from mgpubench.training.models.builtin import mlp, tiny_cnn
from mgpubench.training.models.own import own_model


def make_module(name: str, num_classes: int) -> nn.Module:
    """A model with random weights: float images of shape (N, 3, S, S) in, logits (N, classes) out.

    GoogLeNet and Inception give a tuple of main and auxiliary logits. A user's own model
    (`package.module:function`) decides its number of classes itself.

    Raises:
        RequestRefused: if there is no such model.
        Exception: anything that a user's own function raises.
    """
    if is_own_model(name):
        return own_model(name)
    build = {"tiny-cnn": tiny_cnn, "mlp": mlp}.get(name)
    return build(num_classes) if build else _from_torchvision(name, num_classes)


def _from_torchvision(name: str, num_classes: int) -> nn.Module:
    try:
        import torchvision
    # RuntimeError too: a torchvision that was built for another torch raises it.
    except Exception as error:
        raise TorchUnavailable(
            f"--model {name} needs torchvision, which cannot be imported: {error}",
            "Install the torchvision that belongs to your torch, or use "
            f"--model {BUILTIN_MODELS[0]}.",
        ) from error
    if name not in torchvision.models.list_models(module=torchvision.models):
        raise _unknown(name)
    # Their own initialisation takes seconds, and other random weights train as fast.
    extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model: nn.Module = torchvision.models.get_model(
        name, weights=None, num_classes=num_classes, **extra
    )
    return model


def _unknown(name: str) -> RequestRefused:
    """Say that torchvision has no such classification model, and suggest similar names."""
    if task := _other_task(name):
        return RequestRefused(
            f"--model {name} is a model for {task}, and mgpubench trains image classification",
            "Use a classification model, such as resnet50.",
        )
    if "." in name:
        own = ":".join(name.rsplit(".", 1))
        hint = f"Your own function has a colon before its name: --model {own}"
    else:
        hint = _similar_names(name)
    return RequestRefused(f"--model {name} is unknown", hint)


def _other_task(name: str) -> str:
    """What a model of torchvision is for if not for classification; empty if it has no such."""
    from torchvision import models

    for kind in ("detection", "segmentation", "video", "quantization", "optical_flow"):
        if name in models.list_models(module=getattr(models, kind)):
            return kind.replace("_", " ")
    return ""


def _similar_names(name: str) -> str:
    from torchvision import models

    known = [*BUILTIN_MODELS, *models.list_models(module=models)]
    near = difflib.get_close_matches(name, known, n=3)
    return f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}."
