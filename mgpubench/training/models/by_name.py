"""Models by name: our own, torchvision's, and the user's.

All start from random weights: weights do not change the speed, and nothing is downloaded.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Callable

from torch import nn

from mgpubench.config.run_config import BUILTIN_MODELS, is_own_model
from mgpubench.errors import RequestRefused, TorchUnavailable


def make_module(name: str, num_classes: int) -> nn.Module:
    """A model with random weights: float images of shape (N, 3, S, S) in, logits (N, classes) out.

    GoogLeNet and Inception give a tuple of main and auxiliary logits. A model of the user's own
    (`package.module:function`) decides its number of classes itself.

    Raises:
        RequestRefused: if there is no such model.
        Exception: whatever a function of the user's own raises.
    """
    if is_own_model(name):
        return _call(find_function(name), name)
    build = {"tiny-cnn": _tiny_cnn, "mlp": _mlp}.get(name)
    return build(num_classes) if build else _from_torchvision(name, num_classes)


def _tiny_cnn(num_classes: int) -> nn.Module:
    """Three convolutions with BatchNorm: quick on a CPU, with a ResNet's kinds of layers."""
    return nn.Sequential(
        *_convolution(3, 16), *_convolution(16, 32), *_convolution(32, 64),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, num_classes),
    )  # fmt: skip


def _convolution(channels_in: int, channels_out: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(channels_in, channels_out, kernel_size=3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    )


def _mlp(num_classes: int) -> nn.Module:
    """Many parameters and little arithmetic: communication shows first here. No BatchNorm."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(16), nn.Flatten(),
        nn.Linear(3 * 16 * 16, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
        nn.Linear(1024, num_classes),
    )  # fmt: skip


def find_function(name: str) -> Callable[[], object]:
    """The function that a user named; its module may lie in the current folder.

    Raises:
        RequestRefused: if the module cannot be imported, or has no such function.
    """
    module_name, _, function_name = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # first, as for `python -m`
    try:
        module = importlib.import_module(module_name)
    # A module of the user's own may raise anything while it is imported, SystemExit included.
    except BaseException as error:
        raise RequestRefused(
            f"--model {name}: {module_name} cannot be imported: {type(error).__name__}: {error}",
            "It is looked for in the current folder and in this Python's packages.",
            "".join(traceback.format_exception(error)),
        ) from error
    function: Callable[[], object] | None = getattr(module, function_name, None)
    if not callable(function):
        if function is not None:
            raise RequestRefused(
                f"--model {name}: {function_name} is no function, but of type "
                f"{type(function).__name__}",
                "It takes a function without arguments that returns a torch.nn.Module.",
            )
        near = difflib.get_close_matches(function_name, dir(module), n=1)
        raise RequestRefused(
            f"--model {name}: {module_name} has no function {function_name}",
            f"Did you mean {module_name}:{near[0]}?" if near else f"It is {module.__file__}.",
        )
    return function


def _call(function: Callable[[], object], name: str) -> nn.Module:
    model = function()
    if not isinstance(model, nn.Module):
        raise RequestRefused(
            f"--model {name} returns an object of type {type(model).__name__}",
            "The function must return a torch.nn.Module.",
        )
    if any(_is_compiled(module) for module in model.modules()):
        raise RequestRefused(
            f"--model {name} returns a module that is compiled already",
            "Return it as it was, and add --compile: the time that it takes is then kept apart.",
        )
    return model


def _is_compiled(module: nn.Module) -> bool:
    """True for what torch.compile or Module.compile has made."""
    by_function = type(module).__module__.startswith("torch._dynamo")
    return by_function or getattr(module, "_compiled_call_impl", None) is not None


def _from_torchvision(name: str, num_classes: int) -> nn.Module:
    try:
        import torchvision
    # RuntimeError too: of a torchvision that was built for another torch.
    except Exception as error:
        raise TorchUnavailable(
            f"--model {name} needs torchvision, which cannot be imported: {error}",
            f"Install the torchvision of your torch, or use --model {BUILTIN_MODELS[0]}.",
        ) from error
    if name not in torchvision.models.list_models(module=torchvision.models):
        raise _unknown(name)
    # Their own initialisation takes seconds; random weights of any kind train at the same speed.
    extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model: nn.Module = torchvision.models.get_model(
        name, weights=None, num_classes=num_classes, **extra
    )
    return model


def _unknown(name: str) -> RequestRefused:
    """Why torchvision has no such classification model, and what is near."""
    from torchvision import models

    for kind in ("detection", "segmentation", "video", "quantization", "optical_flow"):
        if name in models.list_models(module=getattr(models, kind)):
            task = kind.replace("_", " ")
            return RequestRefused(
                f"--model {name} is a model for {task}, and mgpubench trains image classification",
                "Use a classification model, such as resnet50.",
            )
    if "." in name:
        own = ":".join(name.rsplit(".", 1))
        return RequestRefused(
            f"--model {name} is not known",
            f"A function of your own has a colon before its name: --model {own}",
        )
    known = [*BUILTIN_MODELS, *models.list_models(module=models)]
    near = difflib.get_close_matches(name, known, n=3)
    return RequestRefused(
        f"--model {name} is not known",
        f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}.",
    )
