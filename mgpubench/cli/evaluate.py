"""`mgpubench evaluate`: how many images a trained model classifies correctly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from mgpubench.cli.options import refuse_all_modes, text_or_json_option, verbose_option
from mgpubench.cli.paths import PATH, PATH_TEXT
from mgpubench.cli.streams import warn
from mgpubench.cli.work_options import DEVICES, options
from mgpubench.config.mode_checks import check_is_one_run, check_trainable
from mgpubench.config.request import Request
from mgpubench.config.types import Mode
from mgpubench.format import format_percent
from mgpubench.machine.current_folder import check_current_folder


@click.command()
@click.argument("checkpoint", type=PATH)
@click.option("--data", required=True, type=PATH_TEXT, help="ImageFolder to evaluate on.")
@options(DEVICES)
@click.option("--batch-per-gpu", "-b", type=int, help="Images per GPU at a time.")
@click.option("--workers-per-gpu", type=int, help="Loader workers per device.")
@text_or_json_option
@verbose_option
@click.pass_context
def evaluate(ctx: click.Context, /, checkpoint: Path, output_format: str, **given: Any) -> None:
    """Evaluate a checkpoint on a folder of images, each image exactly once.

    CHECKPOINT is a file, or the folder of a training: then its best checkpoint is used, or the last
    one. The folder of images may have fewer classes than the training, but no others. One GPU is
    used, unless --gpus names more: then ddp is the default mode.
    """
    refuse_all_modes(ctx, "an evaluation")
    check_current_folder()
    modes: tuple[Mode, ...] = given.pop("modes") or default_modes(given["gpus"])
    check_trainable(modes)
    request = Request(**given, modes=modes)
    check_is_one_run(request, "an evaluation")
    from mgpubench.launch.signals import StopSignal
    from mgpubench.session.checkpoints import evaluate_checkpoint

    with StopSignal().installed() as stop:
        figures = evaluate_checkpoint(checkpoint, request, stop, warn)
        stop.check()
    if output_format == "json":
        click.echo(json.dumps(figures, indent=2))
        return
    top5 = "" if figures["top5"] is None else f", top-5 {format_percent(figures['top5'])}"
    unreadable = f", {figures['unreadable']} unreadable" if figures["unreadable"] else ""
    click.echo(
        f"top-1 {format_percent(figures['top1'])}{top5} of {figures['eval_samples']} images"
        f"{unreadable}"
    )


def default_modes(gpus: tuple[int, ...] | None) -> tuple[Mode, ...]:
    """One device, unless more are asked for."""
    return ("ddp",) if gpus and max(gpus) > 1 else ("single",)
