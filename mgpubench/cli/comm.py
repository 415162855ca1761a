"""`mgpubench comm`: how fast the devices exchange data."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mgpubench.cli.compare_plot import check_plot_file, write_plot
from mgpubench.cli.node_options import NODES, take_nodes, take_part_as
from mgpubench.cli.options import is_verbose, verbose_option
from mgpubench.cli.paths import PATH
from mgpubench.cli.session_options import (
    dry_run_option,
    out_option,
    rounds_option,
    timeout_option,
)
from mgpubench.cli.work_options import PLACES, Decorator, bucket_cap_option, options
from mgpubench.config.comm_request import (
    DEFAULT_CALLS,
    DEFAULT_FACTOR,
    DEFAULT_LARGEST,
    DEFAULT_SMALLEST,
    DEFAULT_WARMUP_CALLS,
    OPERATIONS,
    CommOptions,
    CommRequest,
    Operation,
    parse_size,
)
from mgpubench.config.nodes import Nodes
from mgpubench.config.request import Request
from mgpubench.config.run_config import DdpOptions
from mgpubench.errors import BenchError
from mgpubench.format import format_binary, plain, shown_path
from mgpubench.machine.current_folder import check_current_folder

if TYPE_CHECKING:
    from mgpubench.session.comm import CommOutcome

WORK_OPTIONS = ("gpus", "device", "model", "rounds", "seed", "timeout_s", "out")


def parse_operations(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[Operation, ...] | None:
    """`all-reduce,broadcast` as a tuple without repetitions; None for `all`."""
    if value is None or value == "all":
        return None
    names = [name.strip() for name in value.split(",")]
    if unknown := [name for name in names if name not in OPERATIONS]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(OPERATIONS)}, all.")
    return tuple(operation for operation in OPERATIONS if operation in names)


class Size(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, such as `4KiB`."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """The bytes, or a usage error."""
        try:
            return parse_size(str(value))
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


MEASURED: tuple[Decorator, ...] = (
    click.option(
        "--operations",
        callback=parse_operations,
        metavar="LIST",
        help=f"Comma list of {','.join(OPERATIONS)}, or all.  [default: all]",
    ),
    click.option(
        "--smallest",
        type=Size(),
        help=f"Smallest size, such as 4096 or 4KiB.  [default: {format_binary(DEFAULT_SMALLEST)}]",
    ),
    click.option(
        "--largest",
        type=Size(),
        help="No size is above it.  [default: "
        f"{format_binary(DEFAULT_LARGEST['cuda'])}, on a CPU "
        f"{format_binary(DEFAULT_LARGEST['cpu'])}]",
    ),
    click.option(
        "--factor", type=int, help=f"From one size to the next.  [default: {DEFAULT_FACTOR}]"
    ),
    click.option(
        "--model",
        help="Take the sizes of this model's gradient buckets, as DDP makes them. Names as for "
        "mgpubench run.",
    ),
    bucket_cap_option,
    click.option(
        "--calls",
        type=int,
        default=DEFAULT_CALLS,
        show_default=True,
        help="Calls in a timed block, fewer for large sizes. A run times 5 blocks of each size.",
    ),
    click.option(
        "--warmup-calls",
        type=int,
        default=DEFAULT_WARMUP_CALLS,
        show_default=True,
        help="Calls of each size before the timed ones.",
    ),
)

SESSION: tuple[Decorator, ...] = (
    rounds_option,
    click.option("--seed", type=int, help="Seed of the order of runs and sizes.  [default: drawn]"),
    timeout_option,
    out_option,
    click.option(
        "--plot", type=PATH, metavar="FILE", help="Draw the results too: .png, .svg or .pdf."
    ),
    dry_run_option,
)


@click.command()
@options(PLACES, NODES, MEASURED, SESSION)
@verbose_option
@click.pass_context
def comm(ctx: click.Context, /, plot: Path | None, dry_run: bool, **given: Any) -> None:
    """Measure how fast the devices exchange data, and check every result.

    \b
    mgpubench comm                                     all GPUs, all operations
    mgpubench comm --operations all-reduce --gpus 2,4  one operation on 2 and on 4 GPUs
    mgpubench comm --model resnet50                    what DDP exchanges in a step
    mgpubench comm --device cpu --rounds 1             does it work? (CPU, gloo)

    It cannot be resumed.
    """
    nodes = take_nodes(ctx, given)
    request = make_comm_request(given, 1 if nodes is None else nodes.num_nodes)
    check_current_folder()
    if dry_run:
        show_comm_plan(request)
        return
    if nodes is not None and not nodes.is_first:
        ctx.exit(perform_part(request, nodes, verbose=is_verbose(ctx)))
    if plot is not None:
        check_plot_file(plot)
    ctx.exit(perform(request, nodes, plot, verbose=is_verbose(ctx)))


def make_comm_request(given: dict[str, Any], num_nodes: int) -> CommRequest:
    """The request for the values of all options."""
    work = {name: given[name] for name in WORK_OPTIONS}
    ddp = DdpOptions(bucket_cap_mb=given["bucket_cap_mb"])
    own = {
        name: value for name, value in given.items() if name not in (*WORK_OPTIONS, "bucket_cap_mb")
    }
    request = Request(**work, ddp=ddp)
    return CommRequest(work=request, options=CommOptions(**own), num_nodes=num_nodes)


def show_comm_plan(request: CommRequest) -> None:
    """Print the runs of a request in their order."""
    from mgpubench.launch.signals import StopSignal
    from mgpubench.report.comm import print_comm_runs
    from mgpubench.session.comm import plan_comm_session

    with StopSignal().installed() as stop:
        plan = plan_comm_session(request, stop)
    for notice in plan.notices:
        click.echo(f"note: {plain(notice)}", err=True)
    print_comm_runs(plan.runs)


def perform_part(request: CommRequest, nodes: Nodes, *, verbose: bool) -> int:
    """Make this machine's part of a session whose results node 0 writes."""
    from mgpubench.report.comm_progress import CommProgress
    from mgpubench.session.comm_node import take_part_in_collectives

    display = CommProgress(verbose=verbose)
    part = partial(take_part_in_collectives, request, nodes, display)
    return take_part_as(part, display.close)


def perform(request: CommRequest, nodes: Nodes | None, plot: Path | None, *, verbose: bool) -> int:
    """Measure, print the tables, and return the exit code."""
    from mgpubench.launch.signals import StopSignal
    from mgpubench.report.comm_progress import CommProgress
    from mgpubench.session.comm import CommCall, comm_session

    display = CommProgress(verbose=verbose)
    with StopSignal().installed() as stop:
        try:
            outcome = comm_session(request, CommCall(sys.argv[1:], display, stop, nodes))
        finally:
            display.close()
        exit_code = conclude(outcome, plot)
        # A signal that arrived while the tables were printed was noted, and counts.
        stop.check()
    return exit_code


def conclude(outcome: CommOutcome, plot: Path | None) -> int:
    """Print the outcome of a session, and return the exit code."""
    from mgpubench.report.comm import print_collectives

    has_figures = any(record.is_ok for record in outcome.records)
    try:
        if has_figures:
            print_collectives(outcome.records)
        sys.stdout.flush()
        if has_figures and plot is not None:
            from mgpubench.report.plots.comm import draw_collectives

            file_format = plot.suffix.lower().removeprefix(".")
            write_plot(draw_collectives(outcome.records, file_format), plot)
            click.echo(f"plot: {shown_path(plot)}", err=True)
    finally:
        # Even if the tables cannot be printed, the user must know where the results are.
        if outcome.failed:
            click.echo(f"error: {outcome.failed} of {outcome.planned} runs failed", err=True)
        click.echo(f"results: {shown_path(outcome.folder)}", err=True)
    return BenchError.exit_code if outcome.failed else 0
