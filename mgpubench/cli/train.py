"""`mgpubench train`: train a model on a folder of images, with checkpoints and evaluation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mgpubench.cli.node_options import NODES, check_modes, take_nodes, take_part_as
from mgpubench.cli.options import is_given, refuse_all_modes, verbose_option
from mgpubench.cli.paths import NO_FILE, PATH_TEXT, PathOrNone
from mgpubench.cli.train_checks import (
    hide_measuring_options,
    refuse_measuring_options,
    refuse_unused,
)
from mgpubench.cli.watch_options import WATCHING, Watching
from mgpubench.cli.work_options import DEVICES, PRESETS, WORK, Decorator, options, request_of
from mgpubench.config.nodes import Nodes
from mgpubench.config.train_request import LOG_EVERY, SCHEDULES, TrainOptions, TrainRequest
from mgpubench.config.types import DEFAULT_OUT, DEFAULT_TIMEOUT_S, Mode
from mgpubench.format import shell_path, shown_path
from mgpubench.machine.current_folder import check_current_folder

if TYPE_CHECKING:
    from mgpubench.session.hello import Asked
    from mgpubench.session.trainer import TrainCall, Trained

Make = Callable[["TrainCall"], "Trained"]
"""How to start or resume a training."""

DEFAULTS = TrainOptions()
TRAIN_OPTIONS = tuple(option.name for option in fields(TrainOptions))

TRAINED_ON_NODES: tuple[Mode, ...] = ("ddp", "fsdp")
"""Modes that train on several machines."""

FOLDERS = ("data", "eval_data")
MAY_DIFFER = {*FOLDERS, "gpus", "out", "resume", "pretrained"}
"""Parameters that machines may have different. The images are compared by their digests, and only
node 0 reads the file or folder that a training begins with."""

TRAINING: tuple[Decorator, ...] = (
    click.option("--epochs", type=int, default=DEFAULTS.epochs, show_default=True, help="Epochs."),
    click.option("--lr", type=float, default=DEFAULTS.lr, show_default=True, help="Learning rate."),
    click.option(
        "--momentum", type=float, default=DEFAULTS.momentum, show_default=True, help="Of SGD."
    ),
    click.option(
        "--weight-decay",
        type=float,
        default=DEFAULTS.weight_decay,
        show_default=True,
        help="Of all parameters.",
    ),
    click.option("--nesterov", is_flag=True, help="SGD with Nesterov's momentum."),
    click.option(
        "--lr-schedule",
        type=click.Choice(SCHEDULES),
        default=DEFAULTS.lr_schedule,
        show_default=True,
        help="step divides the learning rate by 10 after every 30 epochs; cosine lets it fall to "
        "0 at the end.",
    ),
    click.option(
        "--warmup-epochs",
        type=float,
        default=DEFAULTS.warmup_epochs,
        show_default=True,
        help="Epochs in which the learning rate rises from 0.",
    ),
    click.option(
        "--label-smoothing",
        type=float,
        default=DEFAULTS.label_smoothing,
        show_default=True,
        help="Share of the target that all classes get.",
    ),
    click.option("--clip-grad-norm", type=float, help="Largest norm of the gradients."),
    click.option(
        "--augment/--no-augment",
        default=DEFAULTS.augment,
        show_default=True,
        help="Random resized crop and horizontal flip.",
    ),
    click.option(
        "--deterministic", is_flag=True, help="Use only deterministic algorithms (slower)."
    ),
    click.option("--eval-data", default="", type=PATH_TEXT, help="ImageFolder to evaluate on."),
    click.option(
        "--split",
        type=float,
        help="Share of the images of each class to train on. The others are for evaluation.",
    ),
    click.option(
        "--eval-every",
        type=int,
        default=DEFAULTS.eval_every,
        show_default=True,
        help="Epochs between two evaluations.",
    ),
    click.option(
        "--checkpoint-every",
        type=int,
        default=DEFAULTS.checkpoint_every,
        show_default=True,
        help="Epochs between two checkpoints.",
    ),
    click.option(
        "--keep",
        type=int,
        default=DEFAULTS.keep,
        show_default=True,
        help="Newest checkpoints to keep, besides the best one.",
    ),
    click.option(
        "--pretrained",
        is_flag=False,
        flag_value=NO_FILE,
        type=PathOrNone(),
        metavar="[FILE]",
        help="Begin with these weights, or with torchvision's own if they are in its cache.",
    ),
)

SESSION: tuple[Decorator, ...] = (
    click.option(
        "--seed",
        type=int,
        help="Seed of weights, order of the images, and augmentation.  [default: 0]",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=float,
        default=DEFAULT_TIMEOUT_S,
        show_default=True,
        help="Seconds without a step, an evaluation batch or a checkpoint after which it is ended.",
    ),
    click.option(
        "--out",
        type=PATH_TEXT,
        default=DEFAULT_OUT,
        show_default=True,
        help="Folder for the training's folder.",
    ),
    click.option(
        "--resume",
        type=PATH_TEXT,
        metavar="FOLDER|FILE|last",
        help="Go on with a training, or begin a new one with a checkpoint. --mode, --gpus, "
        "--workers-per-gpu and --epochs may be different.",
    ),
)


@click.command()
@options(DEVICES, NODES, WORK, TRAINING, PRESETS, SESSION, WATCHING)
@verbose_option
@click.pass_context
def train(
    ctx: click.Context, /, resume: str | None, live: bool, no_telemetry: bool, **given: Any
) -> None:
    """Train a model on a folder of images, with checkpoints and evaluation.

    \b
    mgpubench train --data photos --split 0.9             all GPUs, ResNet-50
    mgpubench train --data photos --mode dp --gpus 2      DataParallel on two GPUs
    mgpubench train --resume last                         go on after Ctrl-C
    """
    refuse_measuring_options(ctx)
    refuse_all_modes(ctx, "a training")
    nodes = take_nodes(ctx, given)
    check_modes(nodes, given["modes"], TRAINED_ON_NODES)
    check_current_folder()
    if nodes is not None and not nodes.is_first:
        ctx.exit(perform_part(ctx, given, nodes))
    asked, watching = asked_of(ctx, given), Watching(live, no_telemetry)
    if resume is not None and (resume == "last" or not Path(resume).is_file()):
        perform(go_on(ctx, given, resume), nodes, asked, watching)
        return
    refuse_unused(ctx, given, resumes=resume is not None)
    checkpoint = None if resume is None else Path(resume)
    perform(train_new(make_train_request(ctx, given), checkpoint), nodes, asked, watching)


def asked_of(ctx: click.Context, given: Mapping[str, Any]) -> Asked:
    """What this machine says about its command line to the others."""
    from mgpubench.session.hello import Asked

    options = {
        name: value
        for name, value in given.items()
        if is_given(ctx, name) and name not in MAY_DIFFER
    }
    has = {name: bool(ctx.params[name]) for name in ("resume", "eval_data")}
    # It is empty for torchvision's own weights.
    has["pretrained"] = given["pretrained"] is not None
    return Asked({**options, **has}, given["gpus"])


hide_measuring_options(train)


def make_train_request(ctx: click.Context, given: Mapping[str, Any]) -> TrainRequest:
    """The request for the values of all options."""
    work = {name: value for name, value in given.items() if name not in TRAIN_OPTIONS}
    if not is_given(ctx, "log_every"):
        work["log_every"] = LOG_EVERY
    own = {name: given[name] for name in TRAIN_OPTIONS}
    return TrainRequest(work=request_of(work), options=TrainOptions(**own))


def train_new(request: TrainRequest, checkpoint: Path | None) -> Make:
    """How to begin a training, perhaps with a checkpoint."""
    from mgpubench.session.train import train_session

    return partial(train_session, request, checkpoint=checkpoint)


def go_on(ctx: click.Context, given: Mapping[str, Any], resume: str) -> Make:
    """How to go on with a training in its folder."""
    from mgpubench.session.train_resume import (
        load_training,
        newest_training,
        resume_training,
        resumed_request,
    )

    folder = newest_training(Path(given["out"])) if resume == "last" else Path(resume)
    click.echo(f"resumes: {shown_path(folder)}", err=True)
    saved = load_training(folder)
    asked = {name: value for name, value in given.items() if is_given(ctx, name)}
    if given["gpus"] is not None:  # torchrun or srun may have decided it
        asked["gpus"] = given["gpus"]
    options_of = {option.name or "": option.opts[0] for option in ctx.command.params}
    return partial(resume_training, saved, resumed_request(saved, asked, options_of))


def perform_part(ctx: click.Context, given: Mapping[str, Any], nodes: Nodes) -> int:
    """Train with this machine's ranks. Node 0 writes the results."""
    from mgpubench.report.training import TrainingProgress
    from mgpubench.session.train_node import AskedHere, take_part_in_training

    is_new = ctx.params["resume"] is None
    if is_new:
        refuse_unused(ctx, given, resumes=False)
    here = AskedHere(
        request=make_train_request(ctx, given) if is_new else None,
        asked=asked_of(ctx, given),
        model=given["model"],
        folders={name: given[name] for name in FOLDERS if is_given(ctx, name)},
    )
    display = TrainingProgress()
    return take_part_as(partial(take_part_in_training, here, nodes, display), display.close)


def perform(make: Make, nodes: Nodes | None, asked: Asked, watching: Watching) -> None:
    """Train, and print the epochs."""
    from mgpubench.launch.signals import StopSignal
    from mgpubench.report.training import TrainingProgress, print_epochs
    from mgpubench.session.trainer import TrainCall

    sampling, lines = watching.open()
    display = TrainingProgress(lines)
    with StopSignal().installed() as stop:
        try:
            trained = make(TrainCall(sys.argv[1:], display, stop, nodes, asked, sampling))
        finally:
            display.close()
        if trained.epochs:
            print_epochs(trained.epochs)
        sys.stdout.flush()
        click.echo(f"results: {shown_path(trained.folder)}", err=True)
        click.echo(f"compare: mgpubench compare {shell_path(trained.folder)}", err=True)
        stop.check()
