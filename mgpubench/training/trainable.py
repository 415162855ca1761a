"""The module that every mode trains: a model and what must happen inside DP and DDP with it."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

from mgpubench.config.run_config import Precision, RunConfig
from mgpubench.training.devices import apply_settings
from mgpubench.training.models.by_name import make_module

# ImageNet's statistics, as the tutorial's Normalize has them, on the 0..255 scale of uint8 images.
IMAGENET_MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
IMAGENET_STD = (0.229 * 255, 0.224 * 255, 0.225 * 255)


class TrainableModel(nn.Module):
    """What goes inside DataParallel or DistributedDataParallel: uint8 images in, fp32 logits out.

    Autocast is entered here, inside the wrapped module, because DataParallel's replica threads do
    not inherit the autocast dtype: bf16 set around it would silently become fp16.
    """

    def __init__(
        self, model: nn.Module, precision: Precision, *, channels_last: bool = False
    ) -> None:
        super().__init__()
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format
        self.model = model.to(memory_format=self._memory_format) if channels_last else model
        self.autocast_dtype = torch.bfloat16 if precision == "amp-bf16" else None
        # No buffers: DDP and DataParallel would broadcast them in every step, which the user's own
        # model does not make them do.
        self._statistics: dict[torch.device, tuple[Tensor, Tensor]] = {}
        self._checked: set[torch.device] = set()

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Logits for uint8 images of shape (N, 3, S, S): the main ones first, then auxiliary ones.

        Each has the shape (N, classes).
        """
        mean, std = self._statistics_on(images.device)
        # Type and memory format in one pass, and no temporaries: they would count as peak memory.
        floats = images.to(torch.float32, memory_format=self._memory_format)
        normalized = floats.sub_(mean).div_(std)
        with self._autocast(images.device.type):
            self._check_dtype(images.device)
            output = self.model(normalized)
        return tuple(logits.float() for logits in all_logits(output))

    def _statistics_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """ImageNet's mean and deviation, made once for each device that a replica runs on."""
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

    def _check_dtype(self, device: torch.device) -> None:
        """Multiply two numbers as the model would, in the first step of each replica.

        Raises:
            RuntimeError: if products come in another type than the precision asked for.
        """
        if device in self._checked:
            return
        self._checked.add(device)
        number = torch.ones(1, 1, device=device)
        expected = self.autocast_dtype or torch.float32
        if (found := (number @ number).dtype) != expected:
            raise RuntimeError(f"matrix products run in {found}, and should in {expected}")


def all_logits(output: object) -> tuple[Tensor, ...]:
    """Main and auxiliary logits; GoogLeNet and Inception give a tuple, with None where unused.

    Raises:
        TypeError: if a model returns anything else.
    """
    outputs = output if isinstance(output, tuple) else (output,)
    logits = tuple(each for each in outputs if each is not None)
    if not logits or not all(isinstance(each, Tensor) for each in logits):
        raise TypeError(f"it returns a {type(output).__name__}, and should return a tensor")
    if not all(each.is_floating_point() for each in logits):
        raise TypeError(f"it returns {logits[0].dtype}, and should return floating-point logits")
    return logits


def build_model(config: RunConfig) -> TrainableModel:
    """The model of a run with random weights, in the run's memory format and in training mode.

    With `compiled`, the model inside is handed to torch.compile, which compiles at the first call.
    Torch is set to what the run says, whatever the module of a user's own has set.

    Raises:
        RequestRefused: if there is no such model.
    """
    model = make_module(config.model, config.num_classes)
    apply_settings(config)
    trainable = TrainableModel(model, config.precision, channels_last=config.channels_last)
    if config.compiled:
        # The model alone: what is around it must stay as it is in the runs that are not compiled.
        trainable.model.compile()
    return trainable.train()  # a function of the user's own may have left it in eval()
