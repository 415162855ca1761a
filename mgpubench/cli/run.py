"""`mgpubench run`: train in each mode, and write the results."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mgpubench.cli.options import is_verbose, parse_counts, parse_modes, verbose_option
from mgpubench.config.request import SMOKE, STANDARD, Request
from mgpubench.config.run_config import (
    DEFAULT_OUT,
    DEFAULT_TIMEOUT_S,
    DEVICE_CHOICES,
    PRECISIONS,
    SYNTHETIC,
)
from mgpubench.errors import BenchError, RequestRefused
from mgpubench.format import plain, shell_path
from mgpubench.machine import host

if TYPE_CHECKING:
    from mgpubench.session.run import Call, Outcome

    Make = Callable[[Call], Outcome]

BESIDE_RESUME = {"resume", "timeout_s", "fail_fast", "dry_run", "verbose"}

MODE_HELP = "Comma list of single,dp,ddp, or all.  [default: all]"
GPUS_HELP = "Comma list of numbers of GPUs (counts, not indices).  [default: all visible]"
DEVICE_HELP = "Where to run; auto takes CUDA if usable, else the CPU.  [default: auto]"
MODEL_HELP = (
    "tiny-cnn, mlp, an image classification model of torchvision by name, or your own as "
    f"package.module:function, called without arguments.  [default: {STANDARD.model}]"
)
BATCH_HELP = f"Samples each GPU takes a step: weak scaling.  [default: {STANDARD.batch_per_gpu}]"
GLOBAL_BATCH_HELP = "Samples all GPUs together take a step: strong scaling."
DATA_HELP = (
    "synthetic (made on the device), synthetic-host (in pinned host memory, copied each step), or "
    "a folder of images with one folder a class."
)
PRECISION_HELP = (
    "[default: tf32 on GPUs of compute capability 8.0 and up, else fp32, which is without TF32]"
)
WORKERS_HELP = "Loader workers for each device.  [default: up to 4, as the cores allow]"
SEED_HELP = "Seed of weights and data, and, if given, of the order of the runs.  [default: 0]"
SMOKE_HELP = (
    "Quick check for CI and laptops: CPU unless --device says otherwise, 2 devices, "
    f"{SMOKE.model}, {SMOKE.batch_per_gpu} per device, image {SMOKE.image_size}, "
    f"{SMOKE.warmup_steps} + {SMOKE.steps} steps, {SMOKE.rounds} round. "
    "Options given beside it win."
)
SKIP_BAD_HELP = "Let another image stand in for one that cannot be read, and count it."
COMPILE_HELP = "Compile the model with torch.compile before the warm-up; not for dp."
CHANNELS_LAST_HELP = (
    "Images and weights in the memory format N, H, W, C (DataParallel may not keep it in its "
    "replicas)."
)
CUDNN_BENCHMARK_HELP = "Let cuDNN choose its algorithms by trial in the warm-up, in every process."
BACKEND_HELP = "DDP: backend of the process group.  [default: nccl on GPUs, gloo elsewhere]"
BUCKET_CAP_HELP = "DDP: size of all buckets.  [default: torch's, 25 with a first one of 1]"
OVERSUBSCRIBE_HELP = "Allow several replicas on one GPU: tests the code, measures nothing."


@click.command()
@click.option("--mode", "-m", "modes", callback=parse_modes, metavar="LIST", help=MODE_HELP)
@click.option("--gpus", "-g", callback=parse_counts, metavar="LIST", help=GPUS_HELP)
@click.option("--device", type=click.Choice(DEVICE_CHOICES), help=DEVICE_HELP)
@click.option("--model", help=MODEL_HELP)
@click.option("--batch-per-gpu", "-b", type=int, help=BATCH_HELP)
@click.option("--global-batch", type=int, help=GLOBAL_BATCH_HELP)
@click.option("--data", default=SYNTHETIC, show_default=True, help=DATA_HELP)
@click.option("--skip-bad-images", is_flag=True, help=SKIP_BAD_HELP)
@click.option("--image-size", type=int, help="Height and width.  [default: the model's own]")
@click.option("--precision", type=click.Choice(PRECISIONS), help=PRECISION_HELP)
@click.option("--workers-per-gpu", type=int, help=WORKERS_HELP)
@click.option(
    "--warmup-steps",
    type=int,
    help=f"Steps run and kept, but in no figure.  [default: {STANDARD.warmup_steps}]",
)
@click.option("--steps", type=int, help=f"Measured steps of a run.  [default: {STANDARD.steps}]")
@click.option(
    "--rounds", type=int, help=f"Runs of every configuration.  [default: {STANDARD.rounds}]"
)
@click.option("--seed", type=int, help=SEED_HELP)
@click.option(
    "--timeout",
    "timeout_s",
    type=float,
    default=DEFAULT_TIMEOUT_S,
    show_default=True,
    help="Seconds that one run may take.",
)
@click.option("--out", default=DEFAULT_OUT, show_default=True, help="Folder for session folders.")
@click.option("--smoke", is_flag=True, help=SMOKE_HELP)
@click.option("--oversubscribe", is_flag=True, help=OVERSUBSCRIBE_HELP)
@click.option("--compile", "compiled", is_flag=True, help=COMPILE_HELP)
@click.option("--channels-last", is_flag=True, help=CHANNELS_LAST_HELP)
@click.option("--cudnn-benchmark", is_flag=True, help=CUDNN_BENCHMARK_HELP)
@click.option("--backend", type=click.Choice(["nccl", "gloo"]), help=BACKEND_HELP)
@click.option("--bucket-cap-mb", type=float, help=BUCKET_CAP_HELP)
@click.option("--gradient-as-bucket-view", is_flag=True, help="DDP: gradients live in the buckets.")
@click.option("--static-graph", is_flag=True, help="DDP: the graph is the same in every step.")
@click.option(
    "--find-unused-parameters", is_flag=True, help="DDP: look for unused parameters (costs time)."
)
@click.option("--fail-fast", is_flag=True, help="End the session at the first run that fails.")
@click.option(
    "--resume",
    metavar="SESSION",
    type=click.Path(path_type=Path),
    help="Make the runs of a session folder that are missing or failed, with its own options; "
    "another --timeout may be given.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print a plan (each session draws its own order) and stop; touch no device.",
)
@verbose_option
@click.pass_context
def run(
    ctx: click.Context, /, dry_run: bool, fail_fast: bool, resume: Path | None, **given: Any
) -> None:
    """Train the same work in each mode and write the figures to a new session folder.

    \b
    mgpubench run                                all GPUs, all modes, ResNet-50
    mgpubench run --mode ddp --gpus 8            one mode on eight GPUs
    mgpubench run --data photos/train -b 128     real images
    mgpubench run --smoke                        does it work? (CPU, seconds)
    """
    request = Request(**given)
    host.refuse_foreign_launcher(os.environ)
    host.check_current_folder()
    from mgpubench.session.run import resume_session, run_session

    make: Make = partial(run_session, request)
    show = partial(show_plan, request)
    if resume is not None:
        refuse_beside_resume(ctx)
        timeout_s = request.timeout_s if is_given(ctx, "timeout_s") else None
        make, show = partial(resume_session, resume, timeout_s), partial(show_missing, resume)
    if dry_run:
        show()
    else:
        ctx.exit(perform(make, fail_fast=fail_fast, verbose=is_verbose(ctx)))


def refuse_beside_resume(ctx: click.Context) -> None:
    """A session that is resumed has all its options already."""
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if is_given(ctx, name) and name not in BESIDE_RESUME:
            raise RequestRefused(
                f"{parameter.opts[0]} and --resume exclude each other",
                "A session goes on with the options with which it began.",
            )


def is_given(ctx: click.Context, name: str) -> bool:
    """True where an option stands on the command line."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def show_plan(request: Request) -> None:
    """Print what would be run, in which order."""
    from mgpubench.launch.signals import StopSignal
    from mgpubench.report.run_summary import print_plan
    from mgpubench.session.run import plan_session

    with StopSignal().installed() as stop:
        plan = plan_session(request, stop)
    say(plan.notices)
    print_plan(plan)


def show_missing(folder: Path) -> None:
    """Print what a session lacks."""
    from mgpubench.report.run_summary import print_plan
    from mgpubench.session.resume import load_session, read_progress

    progress = read_progress(load_session(folder))
    say(progress.warnings)
    if progress.missing.runs:
        print_plan(progress.missing)
    else:
        say([f"nothing is missing in {folder}"])


def say(notices: Iterable[str]) -> None:
    """Print notes on stderr."""
    for notice in notices:
        click.echo(f"note: {plain(notice)}", err=True)


def perform(make: Make, *, fail_fast: bool, verbose: bool) -> int:
    """Run the session, print its tables, and give the exit code."""
    from mgpubench.launch.signals import StopSignal
    from mgpubench.report.progress import SessionDisplay
    from mgpubench.session.run import Call

    display = SessionDisplay(verbose=verbose)
    with StopSignal().installed() as stop:
        try:
            outcome = make(Call(sys.argv[1:], display, stop, fail_fast))
        finally:
            display.close()
        exit_code = conclude(outcome)
        # A signal that came while the tables were printed has been noted, and counts.
        stop.check()
    return exit_code


def conclude(outcome: Outcome) -> int:
    """Print what a session came to, and give the exit code."""
    from mgpubench.report.run_summary import print_summary

    failed = [record for record in outcome.records if not record.is_ok]
    try:
        if len(failed) < len(outcome.records):
            print_summary(outcome.records)
        sys.stdout.flush()
    finally:
        # Whatever becomes of the tables, the user must know where the results are.
        if failed:
            click.echo(f"error: {len(failed)} of {len(outcome.records)} runs failed", err=True)
            again = f"mgpubench run --resume {shell_path(outcome.folder)}"
            click.echo(f"hint: When the cause is mended, make them again: {again}", err=True)
        click.echo(f"results: {outcome.folder}", err=True)
        if len(failed) < len(outcome.records):
            click.echo(f"compare: mgpubench compare {shell_path(outcome.folder)}", err=True)
    return BenchError.exit_code if failed else 0
