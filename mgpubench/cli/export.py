"""`mgpubench export`: the weights of a checkpoint for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from mgpubench.cli.options import verbose_option
from mgpubench.cli.paths import PATH
from mgpubench.machine.current_folder import check_current_folder


@click.command()
@click.argument("checkpoint", type=PATH)
@click.argument("file", type=PATH)
@verbose_option
def export(checkpoint: Path, file: Path) -> None:
    """Write the weights of a checkpoint to FILE, in the format safetensors.

    CHECKPOINT is a file, or the folder of a training: then its best checkpoint is used, or the last
    one.
    """
    check_current_folder()
    from mgpubench.launch.signals import StopSignal
    from mgpubench.session.checkpoints import export_checkpoint

    with StopSignal().installed() as stop:
        export_checkpoint(checkpoint, file, stop)
        stop.check()
    click.echo(f"written: {file}", err=True)
