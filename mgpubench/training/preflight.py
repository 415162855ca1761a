"""What can be known of a model before the first run: its size, and whether it takes the inputs.

It is tried on the meta device, where only shapes are real and nothing is computed. A model of the
user's own that cannot work there is tried for real, on the device of the runs.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from mgpubench.config.run_config import Precision, RunConfig, default_image_size
from mgpubench.errors import BenchError, RequestRefused
from mgpubench.format import shorten, told
from mgpubench.results.schema import ModelFacts
from mgpubench.training.models.architecture import digest_of
from mgpubench.training.models.by_name import find_function, make_module
from mgpubench.training.trainable import TrainableModel

NOTHING_TO_AVERAGE = "more than 1 value per channel"
"""In torch's own words: BatchNorm or GroupNorm over a single value."""

REAL_BATCH = 2
"""Samples with which a model is tried for real: the least that BatchNorm can average."""


def inspect_model(configs: Sequence[RunConfig]) -> ModelFacts:
    """Size of the model that some runs train, and the classes that it tells apart.

    Raises:
        RequestRefused: if there is no such model, or it cannot take the inputs of one of the runs.
    """
    first = configs[0]
    if first.uses_own_model:
        # Before anything is made on the meta device, where the module's own tensors would stay.
        find_function(first.model)
    model = _make_on_meta(first)
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise RequestRefused(
            f"--model {first.model} has lazy parameters, which DataParallel and DDP cannot copy",
            "Let the function call the model once before it returns it.",
        )
    parameters = list(model.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise RequestRefused(
            f"--model {first.model} has no parameters to train", "Is requires_grad off in all?"
        )
    num_classes = min(_try_input(model, config) for config in configs)
    if first.uses_folder and num_classes < first.num_classes:
        raise RequestRefused(
            f"--model {first.model} gives {num_classes} logits, and the folder of --data has "
            f"{first.num_classes} classes",
            "Give a model with at least as many, or a folder with fewer classes.",
        )
    return ModelFacts(
        num_parameters=sum(p.numel() for p in parameters),
        parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
        num_classes=num_classes,
        digest=digest_of(model) if first.uses_own_model else "",
    )


def _make_on_meta(config: RunConfig) -> nn.Module:
    try:
        with torch.device("meta"):
            return make_module(config.model, config.num_classes)
    except BenchError:  # ours already: no such model, no torchvision
        raise
    # Some constructors look at numbers, which tensors on the meta device do not have; a function of
    # the user's own may do anything, and is heard when it is called once more.
    except BaseException:
        return _make_for_real(config).to("meta")


def _make_for_real(config: RunConfig) -> nn.Module:
    try:
        model = make_module(config.model, config.num_classes)
    except BenchError:  # ours already: no such model, no torchvision
        raise
    # A function of the user's own may raise anything, SystemExit included.
    except BaseException as error:
        raise RequestRefused(
            f"--model {config.model} cannot be made: {_gist(error)}",
            "The function is called without arguments; --verbose shows its traceback.",
            "".join(traceback.format_exception(error)),
        ) from error
    if any(parameter.is_meta for parameter in model.parameters()):
        raise RequestRefused(
            f"--model {config.model} gives the same module at every call",
            "Let the function make a new one each time.",
        )
    return model


def _try_input(model: nn.Module, config: RunConfig) -> int:
    """The number of classes that a model tells apart, found by one forward pass of a run's batch.

    In training mode, in which it will run.
    """
    try:
        return _forward(model, config, "fp32", config.batch_per_device, torch.device("meta"))
    # Models refuse a size in many ways: assertions, ValueError, RuntimeError of a layer.
    except BaseException as error:
        if not config.uses_own_model:
            raise _refusal(config, config.batch_per_device, error) from error
    return _try_for_real(config)


def _try_for_real(config: RunConfig) -> int:
    """The same with real numbers and a few samples, for what the meta device cannot do."""
    batch = min(config.batch_per_device, REAL_BATCH)
    device = torch.device("cpu")
    if config.device_indices:
        device = torch.device("cuda", config.device_indices[0])
        torch.cuda.set_device(device)
    model = _make_for_real(config).to(device)
    try:
        return _forward(model, config, config.precision, batch, device)
    # SystemExit included: it is somebody else's code.
    except BaseException as error:
        raise _refusal(config, batch, error) from error


def _forward(
    model: nn.Module, config: RunConfig, precision: Precision, batch: int, device: torch.device
) -> int:
    """The number of classes that all logits of one forward pass have at least."""
    size = config.image_size
    images = torch.zeros(batch, 3, size, size, dtype=torch.uint8, device=device)
    trainable = TrainableModel(model, precision, channels_last=config.channels_last)
    outputs = trainable.train()(images)
    for output in outputs:
        if output.dim() != 2 or len(output) != batch:
            raise ValueError(
                f"it returns the shape {tuple(output.shape)}, and should return logits of shape "
                f"({batch}, classes)"
            )
        if not output.shape[1]:
            raise ValueError("it returns no logits at all: 0 classes")
        if not output.requires_grad:
            raise ValueError("its logits do not depend on a parameter that can be trained")
    return min(int(output.shape[1]) for output in outputs)


def _refusal(config: RunConfig, batch: int, error: BaseException) -> RequestRefused:
    own = default_image_size(config.model)
    hint = f"Its own image size is {own} (--image-size {own})."
    if NOTHING_TO_AVERAGE in told(error):
        hint = "A batch of 1 leaves a normalisation layer nothing to average: give it more."
    elif config.uses_own_model:
        hint = "It takes float images (N, 3, S, S); --verbose shows the traceback."
    return RequestRefused(
        f"--model {config.model} cannot be trained on {batch} x 3 x {config.image_size} x "
        f"{config.image_size} per device: {_gist(error)}",
        hint,
        "".join(traceback.format_exception(error)),
    )


def _gist(error: BaseException) -> str:
    """The first line of an error; its type where the line alone says little."""
    line = shorten(told(error).partition("\n")[0].rstrip("."))
    if isinstance(error, RuntimeError | ValueError | AssertionError) and line:
        return line
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
