"""`mgpubench run`: train in each mode, and write the results."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mgpubench.cli.options import is_verbose, parse_counts, parse_modes, verbose_option
from mgpubench.config.request import SMOKE, STANDARD, Request
from mgpubench.config.run_config import DdpOptions
from mgpubench.config.types import (
    DEFAULT_OUT,
    DEFAULT_TIMEOUT_S,
    DEVICE_CHOICES,
    PRECISIONS,
    SYNTHETIC,
)
from mgpubench.errors import BenchError, RequestRefused
from mgpubench.format import plain, shell_path
from mgpubench.launch.environment import refuse_foreign_launcher
from mgpubench.machine.host import check_current_folder

if TYPE_CHECKING:
    from mgpubench.session.run import Call, Outcome

    Make = Callable[[Call], Outcome]

DDP_OPTIONS = tuple(option.name for option in fields(DdpOptions))

BESIDE_RESUME = {"resume", "timeout_s", "fail_fast", "dry_run", "verbose"}

MODE_HELP = "Comma list of single,dp,ddp, or all.  [default: all]"
GPUS_HELP = "Comma list of numbers of GPUs (counts, not indices).  [default: all visible]"
DEVICE_HELP = "Where to run. auto is CUDA if usable, else the CPU.  [default: auto]"
MODEL_HELP = (
    "tiny-cnn, mlp, the name of a torchvision image classification model, or your own as "
    f"package.module:function, called without arguments.  [default: {STANDARD.model}]"
)
BATCH_HELP = f"Samples per GPU and step: weak scaling.  [default: {STANDARD.batch_per_gpu}]"
GLOBAL_BATCH_HELP = "Samples of all GPUs together per step: strong scaling."
DATA_HELP = (
    "synthetic (made on the device), synthetic-host (in pinned host memory, copied in each "
    "step), or a folder of images with one folder per class."
)
PRECISION_HELP = (
    "Number format. fp32 is without TF32.  [default: tf32 on GPUs of compute capability 8.0 and "
    "up, else fp32]"
)
WORKERS_HELP = "Loader workers per device.  [default: up to 4, if there are enough cores]"
SEED_HELP = "Seed of weights and data and, if given, of the order of the runs.  [default: 0]"
SMOKE_HELP = (
    "Quick check for CI and laptops: CPU unless --device says otherwise, 2 devices, "
    f"{SMOKE.model}, {SMOKE.batch_per_gpu} per device, image {SMOKE.image_size}, "
    f"{SMOKE.warmup_steps} + {SMOKE.steps} steps, {SMOKE.rounds} round. "
    "Other options override it."
)
SKIP_BAD_HELP = "Replace images that cannot be read by other images, and count them."
COMPILE_HELP = "Compile the model with torch.compile before the warm-up (not for dp)."
CHANNELS_LAST_HELP = (
    "Keep images and weights in the memory format N, H, W, C. DataParallel may lose it in its "
    "replicas."
)
CUDNN_BENCHMARK_HELP = (
    "Let cuDNN choose its algorithms by trial during the warm-up, in every process."
)
BACKEND_HELP = "DDP: backend of the process group.  [default: nccl on GPUs, gloo elsewhere]"
BUCKET_CAP_HELP = "DDP: size of all buckets in MiB.  [default: torch's, 25 and 1 for the first]"
OVERSUBSCRIBE_HELP = "Allow several replicas on one GPU. It tests the code and measures nothing."


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
    help=f"Steps before the measured ones, in no figure.  [default: {STANDARD.warmup_steps}]",
)
@click.option("--steps", type=int, help=f"Measured steps per run.  [default: {STANDARD.steps}]")
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
    help="Time limit for one run, in seconds.",
)
@click.option(
    "--out", default=DEFAULT_OUT, show_default=True, help="Folder for the session folders."
)
@click.option("--smoke", is_flag=True, help=SMOKE_HELP)
@click.option("--oversubscribe", is_flag=True, help=OVERSUBSCRIBE_HELP)
@click.option("--compile", "compiled", is_flag=True, help=COMPILE_HELP)
@click.option("--channels-last", is_flag=True, help=CHANNELS_LAST_HELP)
@click.option("--cudnn-benchmark", is_flag=True, help=CUDNN_BENCHMARK_HELP)
@click.option("--backend", type=click.Choice(["nccl", "gloo"]), help=BACKEND_HELP)
@click.option("--bucket-cap-mb", type=float, help=BUCKET_CAP_HELP)
@click.option("--gradient-as-bucket-view", is_flag=True, help="DDP: keep gradients in the buckets.")
@click.option("--static-graph", is_flag=True, help="DDP: promise the same graph in every step.")
@click.option(
    "--find-unused-parameters",
    is_flag=True,
    help="DDP: search for unused parameters, which takes time.",
)
@click.option("--fail-fast", is_flag=True, help="End the session at the first run that fails.")
@click.option(
    "--resume",
    metavar="SESSION",
    type=click.Path(path_type=Path),
    help="Make the missing and failed runs of a session, with its own options. Only --timeout may "
    "be different.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print a plan and stop, without touching a device. Each session draws its own order.",
)
@verbose_option
@click.pass_context
def run(
    ctx: click.Context, /, dry_run: bool, fail_fast: bool, resume: Path | None, **given: Any
) -> None:
    """Train the same work in each mode, and write the figures to a new session folder.

    \b
    mgpubench run                                all GPUs, all modes, ResNet-50
    mgpubench run --mode ddp --gpus 8            one mode on eight GPUs
    mgpubench run --data photos/train -b 128     real images
    mgpubench run --smoke                        does it work? (CPU, seconds)
    """
    request = make_request(given)
    refuse_foreign_launcher(os.environ)
    check_current_folder()
    if resume is not None:
        refuse_beside_resume(ctx)
    if not dry_run:
        timeout_s = request.timeout_s if is_given(ctx, "timeout_s") else None
        make = session_to_make(request, resume, timeout_s)
        ctx.exit(perform(make, fail_fast=fail_fast, verbose=is_verbose(ctx)))
    if resume is not None:
        show_missing(resume)
    else:
        show_plan(request)


def make_request(given: Mapping[str, Any]) -> Request:
    """The request for the values of all options."""
    ddp = DdpOptions(**{name: given[name] for name in DDP_OPTIONS})
    others = {name: value for name, value in given.items() if name not in DDP_OPTIONS}
    return Request(ddp=ddp, **others)


def session_to_make(request: Request, resume: Path | None, timeout_s: float | None) -> Make:
    """A new session for a request, or the rest of the session in the folder `resume`."""
    from mgpubench.session.run import resume_session, run_session

    if resume is None:
        return partial(run_session, request)
    return partial(resume_session, resume, timeout_s)


def refuse_beside_resume(ctx: click.Context) -> None:
    """Refuse options with --resume: the session has its own."""
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if is_given(ctx, name) and name not in BESIDE_RESUME:
            raise RequestRefused(
                f"{parameter.opts[0]} and --resume exclude each other",
                "A resumed session keeps the options it began with.",
            )


def is_given(ctx: click.Context, name: str) -> bool:
    """True if an option is on the command line."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def show_plan(request: Request) -> None:
    """Print the runs of a request in their order."""
    from mgpubench.launch.signals import StopSignal
    from mgpubench.report.run_summary import print_plan
    from mgpubench.session.run import plan_session

    with StopSignal().installed() as stop:
        plan = plan_session(request, stop)
    say(plan.notices)
    print_plan(plan)


def show_missing(folder: Path) -> None:
    """Print the runs that a session lacks."""
    from mgpubench.report.run_summary import print_plan
    from mgpubench.session.document import load_session
    from mgpubench.session.resume import read_progress

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
    """Make the session, print its tables, and return the exit code."""
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
        # A signal that arrived while the tables were printed was noted, and counts.
        stop.check()
    return exit_code


def conclude(outcome: Outcome) -> int:
    """Print the outcome of a session, and return the exit code."""
    from mgpubench.report.run_summary import print_summary

    failed = [record for record in outcome.records if not record.is_ok]
    try:
        if len(failed) < len(outcome.records):
            print_summary(outcome.records)
        sys.stdout.flush()
    finally:
        # Even if the tables cannot be printed, the user must know where the results are.
        if failed:
            click.echo(f"error: {len(failed)} of {len(outcome.records)} runs failed", err=True)
            again = f"mgpubench run --resume {shell_path(outcome.folder)}"
            click.echo(f"hint: After fixing the cause, rerun them with: {again}", err=True)
        click.echo(f"results: {outcome.folder}", err=True)
        if len(failed) < len(outcome.records):
            click.echo(f"compare: mgpubench compare {shell_path(outcome.folder)}", err=True)
    return BenchError.exit_code if failed else 0
