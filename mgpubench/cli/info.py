"""`mgpubench info`: the machine, and what on it will hurt a benchmark."""

from __future__ import annotations

import click

from mgpubench.cli.options import text_or_json_option, verbose_option
from mgpubench.machine.current_folder import check_current_folder


@click.command()
@text_or_json_option
@verbose_option
def info(output_format: str) -> None:
    """Show GPUs, torch, cores, memory and limits, and a remedy for each problem.

    It works without a GPU, a driver or torch.
    """
    check_current_folder()
    from mgpubench.launch.signals import StopSignal
    from mgpubench.machine.advice import examine
    from mgpubench.report.machine_report import to_json, to_text
    from mgpubench.session.prepare import survey_with_or_without_torch

    with StopSignal().installed() as stop:
        survey = survey_with_or_without_torch(stop)
        stop.check()
    advice = examine(survey)
    click.echo(to_text(survey, advice) if output_format == "text" else to_json(survey, advice))
