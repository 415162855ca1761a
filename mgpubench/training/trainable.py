"""The module that every mode trains: a model, and what must happen with it inside DP and DDP."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

from mgpubench.config.types import Precision
from mgpubench.training.devices import Part
from mgpubench.training.models.by_name import make_module
from mgpubench.training.torch_settings import apply_settings, seed_rank

# ImageNet's statistics, as the tutorial's Normalize has them, on the 0..255 scale of uint8 images.
IMAGENET_MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
IMAGENET_STD = (0.229 * 255, 0.224 * 255, 0.225 * 255)

AUTOCAST_TYPES: dict[Precision, torch.dtype] = {
    "amp-bf16": torch.bfloat16,
    "amp-fp16": torch.float16,
}
WEIGHT_TYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The precisions in which not all is fp32."""


class TrainableModel(nn.Module):
    """The module inside DataParallel or DistributedDataParallel: uint8 images in, fp32 logits out.

    Autocast is entered here, inside the wrapped module, because DataParallel's replica threads do
    not inherit the autocast dtype: bf16 set outside would silently become fp16.
    """

    def __init__(
        self, model: nn.Module, precision: Precision, *, channels_last: bool = False
    ) -> None:
        super().__init__()
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format
        self.model = model.to(memory_format=self._memory_format) if channels_last else model
        self.autocast_dtype = AUTOCAST_TYPES.get(precision)
        self._weight_dtype = WEIGHT_TYPES.get(precision, torch.float32)
        if precision in WEIGHT_TYPES:
            self.model = self.model.to(self._weight_dtype)
        # Not as buffers: DDP and DataParallel would broadcast them in every step, which training
        # the model alone would not do.
        self._statistics: dict[torch.device, tuple[Tensor, Tensor]] = {}
        self._checked: set[torch.device] = set()

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Logits for uint8 images of shape (N, 3, S, S): the main ones, then the auxiliary ones.

        Each has the shape (N, classes).
        """
        mean, std = self._statistics_on(images.device)
        # Type and memory format in one pass, without temporaries, which would add to peak memory.
        floats = images.to(torch.float32, memory_format=self._memory_format)
        normalized = floats.sub_(mean).div_(std).to(self._weight_dtype)
        with self._autocast(images.device.type):
            self._check_dtype(normalized)
            output = self.model(normalized)
        return tuple(logits.float() for logits in all_logits(output))

    def _statistics_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """ImageNet's mean and deviation, made once on each device."""
        if device not in self._statistics:
            mean, std = (
                torch.tensor(values, device=device).view(1, 3, 1, 1)
                for values in (IMAGENET_MEAN, IMAGENET_STD)
            )
            self._statistics[device] = mean, std
        return self._statistics[device]

    def _autocast(self, device_type: str) -> contextlib.AbstractContextManager[object]:
        if self.autocast_dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(device_type, dtype=self.autocast_dtype)

    def _check_dtype(self, images: Tensor) -> None:
        """Multiply two numbers as the model does with its input, once on each device.

        Raises:
            RuntimeError: if the product does not have the type that the precision asks for.
        """
        if images.device in self._checked:
            return
        self._checked.add(images.device)
        number = images.new_ones(1, 1)
        expected = self.autocast_dtype or self._weight_dtype
        if (found := (number @ number).dtype) != expected:
            raise RuntimeError(f"matrix products run in {found} instead of {expected}")


def all_logits(output: object) -> tuple[Tensor, ...]:
    """Main and auxiliary logits. GoogLeNet and Inception give a tuple, with None for unused ones.

    Raises:
        TypeError: if a model returns anything else.
    """
    outputs = output if isinstance(output, tuple) else (output,)
    logits = tuple(each for each in outputs if each is not None)
    if not logits or not all(isinstance(each, Tensor) for each in logits):
        raise TypeError(f"it returns a {type(output).__name__} instead of a tensor")
    if not all(each.is_floating_point() for each in logits):
        raise TypeError(f"it returns {logits[0].dtype} instead of floating-point logits")
    return logits


def build_model(part: Part) -> TrainableModel:
    """The model of a run with random weights, on its device, in training mode.

    The weights are the same on all ranks. What the model draws from now on (dropout) is not.
    With `compiled`, the model inside is given to torch.compile, which compiles at the first call.
    Torch's settings are applied again, since a user's own module may have changed them.

    Raises:
        RequestRefused: if there is no such model.
    """
    config = part.config
    model = make_module(config.model, config.num_classes)
    apply_settings(config)
    seed_rank(config.seed, part.rank)
    trainable = TrainableModel(model, config.precision, channels_last=config.channels_last)
    if config.compiled:
        # Only the model: everything around it must stay as it is in runs that are not compiled.
        trainable.model.compile()
    # A user's own function may have left the model in eval().
    return trainable.to(part.device).train()
