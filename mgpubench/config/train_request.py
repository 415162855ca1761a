"""What a person asks of `mgpubench train`, checked without torch and without the machine."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Literal, get_args

from mgpubench.config.mode_checks import check_is_one_run, check_trainable
from mgpubench.config.recipe import Recipe
from mgpubench.config.request import Request
from mgpubench.config.request_checks import check_number
from mgpubench.config.types import Optimizer
from mgpubench.errors import RequestRefused

Schedule = Literal["constant", "step", "cosine"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)

MAX_RATE = 100_000.0
"""More than any model learns with; torch fails at rates that float32 cannot hold."""

RATE_LIMITS = {
    "lr": MAX_RATE,
    "momentum": 1.0,
    "weight_decay": MAX_RATE,
    "label_smoothing": 1.0,
}
"""The rates may be 0 or higher, and must be below these values."""

LOG_EVERY = 10
"""Steps between two lines of loss in a training, if --log-every is not given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainOptions:
    """The options of training that a measurement does not have."""

    epochs: int = 30
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    nesterov: bool = False
    lr_schedule: Schedule = "constant"
    warmup_epochs: float = 0.0
    """Epochs in which the learning rate rises from 0."""
    label_smoothing: float = 0.0
    clip_grad_norm: float | None = None
    """Largest norm of all gradients together; None: no limit."""
    augment: bool = True
    """Random resized crop and horizontal flip."""
    deterministic: bool = False
    eval_data: str = ""
    """ImageFolder to evaluate on."""
    split: float | None = None
    """Share of the images of each class to train on; the others are for evaluation."""
    eval_every: int = 1
    checkpoint_every: int = 1
    keep: int = 2
    """Newest checkpoints that are kept, besides the best one."""
    pretrained: str | None = None
    """Weights to begin with: a file, or empty for torchvision's own; None: random ones."""

    @property
    def pretrained_file(self) -> Path | None:
        """The file to begin with; None: torchvision's own."""
        return Path(self.pretrained) if self.pretrained else None

    def recipe(self, optimizer: Optimizer) -> Recipe:
        """How weights are updated, at the base learning rate."""
        return Recipe(
            optimizer=optimizer,
            lr=self.lr,
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            nesterov=self.nesterov,
            label_smoothing=self.label_smoothing,
            clip_grad_norm=self.clip_grad_norm,
        )

    def __post_init__(self) -> None:
        """Refuse values that are impossible."""
        for option, value in (
            ("--epochs", self.epochs),
            ("--eval-every", self.eval_every),
            ("--checkpoint-every", self.checkpoint_every),
            ("--keep", self.keep),
        ):
            check_number(option, value, 1)
        self._check_rates()
        self._check_warmup()
        if self.eval_data and self.split is not None:
            raise RequestRefused(
                "--eval-data and --split exclude each other",
                "Evaluate on a folder of its own, or on a share of the training images.",
            )

    def _check_rates(self) -> None:
        for name, most in RATE_LIMITS.items():
            rate = getattr(self, name)
            if not 0 <= rate < most:
                option = f"--{name.replace('_', '-')}"
                raise RequestRefused(
                    f"{option} is {rate:g}, and must be at least 0 and below {most:g}"
                )
        if self.clip_grad_norm is not None and not 0 < self.clip_grad_norm < inf:
            raise RequestRefused(
                f"--clip-grad-norm is {self.clip_grad_norm:g}, and must be a number above 0",
                "Leave it out if the norm should have no limit.",
            )
        if self.split is not None and not 0 < self.split < 1:
            raise RequestRefused(f"--split is {self.split:g}, and must be above 0 and below 1")
        if self.nesterov and not self.momentum:
            raise RequestRefused(
                "--nesterov needs a --momentum above 0",
                "Leave --nesterov out, or use a momentum such as the default, 0.9.",
            )

    def _check_warmup(self) -> None:
        """A warm-up may be as long as the training: then the last step has the whole rate."""
        if not 0 <= self.warmup_epochs < inf:
            raise RequestRefused(
                f"--warmup-epochs is {self.warmup_epochs:g}, and must be a number from 0 up"
            )
        if self.warmup_epochs > self.epochs:
            raise RequestRefused(
                f"--warmup-epochs {self.warmup_epochs:g} is more than --epochs {self.epochs}: the "
                "learning rate would never reach --lr",
                "Train more epochs, or let the rate rise in fewer.",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainRequest:
    """What a person asked for: the work, as `run` has it, and how to train."""

    work: Request
    options: TrainOptions

    def __post_init__(self) -> None:
        """Refuse what training cannot do."""
        work, options = self.work, self.options
        if not work.uses_folder:
            raise RequestRefused(
                f"--data is {work.data}, and training needs a folder of images",
                "Name one with --data FOLDER. To measure the speed on synthetic data: mgpubench "
                "run.",
            )
        check_is_one_run(work, "a training")
        check_trainable(work.modes)
        if options.deterministic and work.cudnn_benchmark:
            raise RequestRefused(
                "--deterministic and --cudnn-benchmark exclude each other: cuDNN's trials may "
                "choose other algorithms in the next training",
                "Leave --cudnn-benchmark out for equal weights, or --deterministic for speed.",
            )
        if options.nesterov and work.optimizer != "sgd":
            raise refuse_for_sgd("--nesterov", work.optimizer)


def refuse_for_sgd(options: str, optimizer: Optimizer) -> RequestRefused:
    """The refusal of options that only SGD has."""
    return RequestRefused(
        f"{options}: only for sgd, and --optimizer is {optimizer}",
        "Leave out what only sgd has, or use --optimizer sgd.",
    )


def refuse_pretrained_at_resume() -> RequestRefused:
    """The refusal of --pretrained in a training that goes on from a checkpoint."""
    return RequestRefused(
        "--pretrained and --resume exclude each other: the checkpoint has the weights",
        "Leave --pretrained out, or begin a new training with --pretrained FILE alone.",
    )
