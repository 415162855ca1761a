"""`mgpubench run`: train in each mode, and write the results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from mgpubench.cli.node_options import NODES, check_modes, take_nodes, take_part_as
from mgpubench.cli.options import is_given, is_verbose, verbose_option
from mgpubench.cli.run_options import ROUNDS, SESSION, WITH_RESUME
from mgpubench.cli.variants import AA, VariantOptions, parse_variants
from mgpubench.cli.watch_options import WATCHING, Watching
from mgpubench.cli.work_options import DEVICES, PRESETS, WORK, options, request_of
from mgpubench.config.nodes import Nodes
from mgpubench.config.request import Request
from mgpubench.errors import BenchError, RequestRefused
from mgpubench.format import plain, shell_path, shown_path
from mgpubench.machine.current_folder import check_current_folder

if TYPE_CHECKING:
    from mgpubench.session.resume import Resume
    from mgpubench.session.run import Call, Outcome

    Make = Callable[[Call], Outcome]


@click.command()
@options(DEVICES, NODES, WORK, ROUNDS, PRESETS, SESSION, WATCHING)
@verbose_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    dry_run: bool,
    fail_fast: bool,
    resume: Path | None,
    resume_only_missing: bool,
    live: bool,
    no_telemetry: bool,
    show_shards: bool,
    **given: Any,
) -> None:
    """Train the same work in each mode, and write the figures to a new session folder.

    \b
    mgpubench run                                all GPUs, all modes, ResNet-50
    mgpubench run --mode ddp --gpus 8            one mode on eight GPUs
    mgpubench run --data photos/train -b 128     real images
    mgpubench run --smoke                        does it work? (CPU, seconds)
    """
    watching = Watching(live, no_telemetry)
    nodes = take_nodes(ctx, given)
    if show_shards:
        print_shards_instead(ctx, given, nodes)
    request = make_request(ctx, given)
    check_modes(nodes, request.modes)
    check_current_folder()
    if resume is not None:
        refuse_beside_resume(ctx)
    elif resume_only_missing:
        raise RequestRefused("--resume-only-missing needs --resume SESSION")
    if nodes is not None and not nodes.is_first and not dry_run:
        asked = None if resume is not None else request
        ctx.exit(perform_part(asked, nodes, verbose=is_verbose(ctx)))
    show, make = session_to_make(ctx, request, resume)
    if dry_run:
        show()
    else:
        ctx.exit(perform(make, nodes, watching, fail_fast=fail_fast, verbose=is_verbose(ctx)))


def print_shards_instead(
    ctx: click.Context, given: Mapping[str, Any], nodes: Nodes | None
) -> NoReturn:
    """Print who gets what of a batch, and end."""
    from mgpubench.cli.shards import show_shards

    for name, option in (("resume", "--resume"), ("dry_run", "--dry-run")):
        if ctx.params[name]:
            raise RequestRefused(f"--show-shards and {option} exclude each other")
    if nodes is not None:
        raise RequestRefused("--show-shards is for one machine")
    check_current_folder()
    show_shards(partial(make_request, ctx), given)
    ctx.exit(0)


def make_request(ctx: click.Context, given: Mapping[str, Any]) -> Request:
    """The request for the values of all options."""
    values = {name: value for name, value in given.items() if name not in ("variants", "aa")}
    base = request_of(values)
    if is_given(ctx, "until") and not base.until:
        raise RequestRefused("--until is empty", "Is a shell variable unset?")
    if given["aa"] and given["variants"]:
        raise RequestRefused("--aa and --variant exclude each other")
    beside = {
        parameter.name or "": parameter.opts[0]
        for parameter in ctx.command.params
        if is_given(ctx, parameter.name or "")
    }
    variants = parse_variants(given["variants"], beside)
    if given["aa"]:
        variants = [VariantOptions(name, {}, ()) for name in AA]
    requests = tuple(
        request_of(
            {
                **values,
                **variant.values,
                "variant": variant.name,
                "variant_number": number,
                "env": variant.env,
            }
        )
        for number, variant in enumerate(variants, start=1)
    )
    return replace(base, variants=requests)


def session_to_make(
    ctx: click.Context, request: Request, folder: Path | None
) -> tuple[Callable[[], None], Make]:
    """How to show and how to make a new session, or the rest of the session in `folder`."""
    from mgpubench.session.resume import Resume
    from mgpubench.session.run import resume_session, run_session

    if folder is None:
        num_nodes = ctx.params["nnodes"] or 1
        return partial(show_plan, request, num_nodes), partial(run_session, request)
    resume = Resume(
        folder=folder,
        timeout_s=request.timeout_s if is_given(ctx, "timeout_s") else None,
        only_missing=ctx.params["resume_only_missing"],
        rounds=request.rounds,
        until=request.until,
        max_rounds=request.max_rounds,
        duration_s=request.duration_s,
    )
    return partial(show_missing, resume), partial(resume_session, resume)


def refuse_beside_resume(ctx: click.Context) -> None:
    """Refuse options with --resume: the session has its own."""
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if is_given(ctx, name) and name not in WITH_RESUME:
            raise RequestRefused(
                f"{parameter.opts[0]} and --resume exclude each other",
                "A resumed session keeps the options it began with.",
            )


def show_plan(request: Request, num_nodes: int) -> None:
    """Print the runs of a request in their order."""
    from mgpubench.launch.signals import StopSignal
    from mgpubench.report.run_summary import print_runs
    from mgpubench.session.run import plan_session

    with StopSignal().installed() as stop:
        plan = plan_session(request, stop, num_nodes)
    say(plan.notices)
    print_runs(plan.runs)


def show_missing(resume: Resume) -> None:
    """Print the runs that a resumed session would make."""
    from mgpubench.report.run_summary import print_runs
    from mgpubench.session.resume import load_runs, read_progress, runs_to_make

    progress = read_progress(load_runs(resume.folder))
    _, runs = runs_to_make(progress, resume)
    say((*progress.warnings, *progress.repeated(runs)))
    if runs:
        print_runs(runs)
    else:
        say([f"nothing is missing in {resume.folder}"])


def say(notices: Iterable[str]) -> None:
    """Print notes on stderr."""
    for notice in notices:
        click.echo(f"note: {plain(notice)}", err=True)


def perform(
    make: Make, nodes: Nodes | None, watching: Watching, *, fail_fast: bool, verbose: bool
) -> int:
    """Make the session, print its tables, and return the exit code."""
    from mgpubench.launch.signals import StopSignal
    from mgpubench.report.progress import SessionDisplay
    from mgpubench.session.run import Call

    sampling, lines = watching.open()
    display = SessionDisplay(verbose=verbose, live=lines)
    with StopSignal().installed() as stop:
        try:
            outcome = make(Call(sys.argv[1:], display, stop, fail_fast, nodes, sampling))
        finally:
            display.close()
        exit_code = conclude(outcome)
        # A signal that arrived while the tables were printed was noted, and counts.
        stop.check()
    return exit_code


def perform_part(request: Request | None, nodes: Nodes, *, verbose: bool) -> int:
    """Make this machine's part of a session whose results node 0 writes."""
    from mgpubench.report.progress import SessionDisplay
    from mgpubench.session.node import take_part

    display = SessionDisplay(verbose=verbose)
    return take_part_as(partial(take_part, request, nodes, display), display.close)


def conclude(outcome: Outcome) -> int:
    """Print the outcome of a session, and return the exit code."""
    from mgpubench.report.endurance import print_endurance
    from mgpubench.report.run_summary import print_summary

    has_figures = any(record.is_ok for record in outcome.records)
    try:
        if has_figures:
            print_summary(outcome.records, outcome.folder)
        if outcome.is_endurance:
            print_endurance(outcome.records)
        sys.stdout.flush()
    finally:
        # Even if the tables cannot be printed, the user must know where the results are.
        if outcome.failed:
            click.echo(f"error: {outcome.failed} of {outcome.planned} runs failed", err=True)
            again = f"mgpubench run --resume {shell_path(outcome.folder)}"
            click.echo(f"hint: After fixing the cause, rerun them with: {again}", err=True)
        click.echo(f"results: {shown_path(outcome.folder)}", err=True)
        if has_figures:
            click.echo(f"compare: mgpubench compare {shell_path(outcome.folder)}", err=True)
    return BenchError.exit_code if outcome.failed else 0
