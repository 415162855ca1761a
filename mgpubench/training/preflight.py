"""What can be known about a model before the first run: its size, and whether it takes the inputs.

The model is tried on the meta device, where tensors have shapes and no numbers. A user's own model
that does not work there is tried with real numbers, on the device of the runs.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import Precision, default_image_size
from mgpubench.errors import BenchError, RequestRefused
from mgpubench.format import gist, message_of
from mgpubench.results.schema import ModelFacts
from mgpubench.training.models.by_name import make_module
from mgpubench.training.models.own import find_function
from mgpubench.training.models.source_digest import digest_of
from mgpubench.training.trainable import TrainableModel

NOTHING_TO_AVERAGE = "more than 1 value per channel"
"""What torch says if BatchNorm or GroupNorm gets a single value."""

REAL_BATCH = 2
"""Samples for a try with real numbers: the fewest that BatchNorm can average."""


def inspect_model(configs: Sequence[RunConfig]) -> ModelFacts:
    """The size of the model of some runs, and its number of classes.

    Raises:
        RequestRefused: if there is no such model, or it cannot take the inputs of one of the runs.
    """
    first = configs[0]
    if first.uses_own_model:
        # Import it first: tensors that its module makes must not be on the meta device.
        find_function(first.model)
    model = make_on_meta(first)
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise RequestRefused(
            f"--model {first.model} has lazy parameters, which DataParallel and DDP cannot copy",
            "Call the model once in your function before you return it.",
        )
    parameters = list(model.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise RequestRefused(
            f"--model {first.model} has no parameters to train",
            "Is requires_grad off for all of them?",
        )
    num_classes = min(_try_input(model, config) for config in configs)
    if first.uses_folder and num_classes < first.num_classes:
        raise RequestRefused(
            f"--model {first.model} gives {num_classes} logits, and the folder of --data has "
            f"{first.num_classes} classes",
            "Use a model with at least as many, or a folder with fewer classes.",
        )
    return ModelFacts(
        num_parameters=sum(p.numel() for p in parameters),
        parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
        num_classes=num_classes,
        digest=digest_of(model, first.model) if first.uses_own_model else "",
    )


def make_on_meta(config: RunConfig) -> nn.Module:
    """The model of a run without numbers.

    Raises:
        RequestRefused: if there is no such model, or it cannot be built.
    """
    try:
        with torch.device("meta"):
            return make_module(config.model, config.num_classes)
    except BenchError:  # no such model, or no torchvision
        raise
    # Some constructors look at numbers, which tensors on the meta device do not have. A user's own
    # function may raise anything. Its error is reported when it is called again.
    except BaseException:
        return _make_for_real(config).to("meta")


def _make_for_real(config: RunConfig) -> nn.Module:
    try:
        model = make_module(config.model, config.num_classes)
    except BenchError:  # no such model, or no torchvision
        raise
    # A user's own function may raise anything, SystemExit included.
    except BaseException as error:
        raise RequestRefused(
            f"--model {config.model} cannot be built: {_gist(error)}",
            "The function is called without arguments; --verbose shows the traceback.",
            "".join(traceback.format_exception(error)),
        ) from error
    if any(parameter.is_meta for parameter in model.parameters()):
        raise RequestRefused(
            f"--model {config.model} returns the same module at every call",
            "Make a new one each time in your function.",
        )
    return model


def _try_input(model: nn.Module, config: RunConfig) -> int:
    """The number of classes of a model, from a forward pass with a run's batch in training mode."""
    batch = config.micro_batch_per_device
    try:
        return _forward(model, config, "fp32", batch, torch.device("meta"))
    # Models refuse a size in many ways: with an AssertionError, ValueError or RuntimeError.
    except BaseException as error:
        if not config.uses_own_model:
            raise _refusal(config, batch, error) from error
    return _try_for_real(config)


def _try_for_real(config: RunConfig) -> int:
    """The same with real numbers and few samples, for models that the meta device cannot run."""
    batch = min(config.micro_batch_per_device, REAL_BATCH)
    device = torch.device("cpu")
    if config.device_indices:
        device = torch.device("cuda", config.device_indices[0])
        torch.cuda.set_device(device)
    model = _make_for_real(config).to(device)
    try:
        return _forward(model, config, config.precision, batch, device)
    # SystemExit included: it is the user's code.
    except BaseException as error:
        raise _refusal(config, batch, error) from error


def _forward(
    model: nn.Module, config: RunConfig, precision: Precision, batch: int, device: torch.device
) -> int:
    """The number of classes: the smallest width of all logits of a forward pass."""
    size = config.image_size
    images = torch.zeros(batch, 3, size, size, dtype=torch.uint8, device=device)
    trainable = TrainableModel(model, precision, channels_last=config.channels_last)
    outputs = trainable.train()(images)
    for output in outputs:
        _check_logits(output, batch)
    return min(int(output.shape[1]) for output in outputs)


def _check_logits(output: torch.Tensor, batch: int) -> None:
    if output.dim() != 2 or len(output) != batch:
        raise ValueError(
            f"it returns the shape {tuple(output.shape)} instead of logits of shape ({batch}, "
            "classes)"
        )
    if not output.shape[1]:
        raise ValueError("it returns logits for 0 classes")
    if not output.requires_grad:
        raise ValueError("its logits do not depend on any trainable parameter")


def _refusal(config: RunConfig, batch: int, error: BaseException) -> RequestRefused:
    own = default_image_size(config.model)
    hint = f"Its own image size is {own} (--image-size {own})."
    if NOTHING_TO_AVERAGE in message_of(error):
        hint = "A normalisation layer cannot average a batch of 1: use a larger batch."
    elif config.uses_own_model:
        hint = "It gets float images (N, 3, S, S); --verbose shows the traceback."
    return RequestRefused(
        f"--model {config.model} cannot be trained on {batch} x 3 x {config.image_size} x "
        f"{config.image_size} per device: {_gist(error)}",
        hint,
        "".join(traceback.format_exception(error)),
    )


def _gist(error: BaseException) -> str:
    """The first line of an error, with its type if the line alone says little."""
    line = gist(message_of(error))
    if isinstance(error, RuntimeError | ValueError | AssertionError) and line:
        return line
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
