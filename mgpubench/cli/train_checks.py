"""What `train` refuses because of the options that were given, whatever their values are.

Only the command line knows whether an option was given or has its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from mgpubench.cli.options import is_given
from mgpubench.config.train_request import refuse_for_sgd, refuse_pretrained_at_resume
from mgpubench.errors import RequestRefused

MEASURING = {
    "steps": "A training counts epochs: --epochs.",
    "warmup_steps": "In a training only the learning rate warms up: --warmup-epochs.",
    "oversubscribe": "A training has one replica on each GPU: use fewer --gpus.",
}
"""Options of `run` that a training has no use for, and what to do instead."""

ONLY_SGD = {"momentum": "--momentum", "nesterov": "--nesterov"}


def hide_measuring_options(command: click.Command) -> None:
    """Leave them out of the help. They are only there to be refused with a hint."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name in MEASURING:
            parameter.hidden = True


def refuse_measuring_options(ctx: click.Context) -> None:
    """Refuse the options of a measurement.

    Raises:
        RequestRefused: naming one of them.
    """
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name in MEASURING and is_given(ctx, name):
            raise RequestRefused(f"{parameter.opts[0]} is for mgpubench run", MEASURING[name])


def refuse_unused(ctx: click.Context, given: Mapping[str, Any], *, resumes: bool) -> None:
    """Refuse options that were given, and that a new training would not use.

    It `resumes` if it begins with a checkpoint.

    Raises:
        RequestRefused: naming them.
    """
    unused = [option for name, option in ONLY_SGD.items() if is_given(ctx, name)]
    if unused and given["optimizer"] != "sgd":
        raise refuse_for_sgd(", ".join(unused), given["optimizer"])
    evaluates = given["eval_data"] or given["split"] is not None
    if is_given(ctx, "eval_every") and not evaluates:
        raise RequestRefused(
            "--eval-every has no meaning without images to evaluate on",
            "Give them with --eval-data FOLDER, or a share of --data with --split 0.9.",
        )
    if resumes and given["pretrained"] is not None:
        raise refuse_pretrained_at_resume()
