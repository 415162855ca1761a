"""`mgpubench predict`: the likeliest classes of images."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mgpubench.cli.options import text_or_json_option, verbose_option
from mgpubench.cli.paths import PATH, PATH_TEXT
from mgpubench.format import format_percent, plain
from mgpubench.machine.current_folder import check_current_folder

if TYPE_CHECKING:  # it needs torch
    from mgpubench.training.prediction import Prediction


@click.command()
@click.argument("checkpoint", type=PATH)
@click.argument("images", nargs=-1, required=True, type=PATH_TEXT, metavar="IMAGE...")
@text_or_json_option
@verbose_option
def predict(checkpoint: Path, images: tuple[str, ...], output_format: str) -> None:
    """Print the five likeliest classes of each image, with their probabilities.

    CHECKPOINT is a file, or the folder of a training: then its best checkpoint is used, or the last
    one.
    """
    check_current_folder()
    from mgpubench.launch.signals import StopSignal
    from mgpubench.session.checkpoints import predict_images

    with StopSignal().installed() as stop:
        predictions = predict_images(checkpoint, images, stop)
        stop.check()
    if output_format == "json":
        documents = [asdict(prediction) for prediction in predictions]
        click.echo(json.dumps(documents, indent=2, ensure_ascii=False))
    else:
        for prediction in predictions:
            _print_guesses(prediction)


def _print_guesses(prediction: Prediction) -> None:
    click.echo(plain(prediction.image))
    for guess in prediction.guesses:
        click.echo(f"  {format_percent(guess.probability):>7}  {plain(guess.name)}")
