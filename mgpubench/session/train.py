"""One call of `mgpubench train`: from a request to epochs on disk."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mgpubench.config.train_request import TrainRequest
from mgpubench.launch.supervisor import open_supervisor
from mgpubench.results.checkpoint_files import check_is_there
from mgpubench.results.session_folder import open_session
from mgpubench.results.training import TRAINING_FILES
from mgpubench.session.document import called_part, installed_part
from mgpubench.session.prepare import check_out
from mgpubench.session.telemetry import open_telemetry
from mgpubench.session.train_prepare import (
    Prepared,
    like_checkpoint,
    prepare_training,
)
from mgpubench.session.trainer import TrainCall, Trained, Trainer
from mgpubench.session.training_images import find_images
from mgpubench.session.workers import READ_ABOUT, TRAINING_OF_IMAGES
from mgpubench.training.data.listing import check_outside

if TYPE_CHECKING:  # it needs torch
    from mgpubench.training.checkpoint import About


def train_session(
    request: TrainRequest, call: TrainCall, checkpoint: Path | None = None
) -> Trained:
    """Train all epochs in a new folder, and record each one at once.

    With a checkpoint, the epochs up to its own are behind the training already.

    Raises:
        BenchError: if it could not be started, or a rank failed; Interrupted after a signal.
    """
    check_out(request.work)
    if request.options.eval_data:
        check_outside(Path(request.work.out), Path(request.options.eval_data), "--eval-data")
    if request.options.pretrained_file is not None:
        check_is_there(request.options.pretrained_file)
    images = find_images(request, call.stop)
    with open_supervisor(call.stop, TRAINING_OF_IMAGES) as supervisor:
        first_epoch = 0
        if checkpoint is not None:
            about: About = supervisor.call(READ_ABOUT, checkpoint)
            request = like_checkpoint(request, checkpoint, about, images.listing.classes)
            first_epoch = about.epoch
        prepared = prepare_training(supervisor, request, images, call.display)
        prepared.check_start(request, checkpoint, call.display)
        prepared.check_room(Path(request.work.out))
        about_it = {
            "options": asdict(request.options),
            "classes": list(images.listing.classes),
            "resumed_from": str(checkpoint) if checkpoint else None,
        }
        document = {**_called(request, prepared, call), **about_it, **prepared.trained_part(images)}
        now = datetime.now(UTC)
        with (
            open_session(Path(request.work.out), document, now, TRAINING_FILES) as session,
            open_telemetry(session, call.display, 1, call.sampling) as telemetry,
        ):
            machine = prepared.machine
            trainer = Trainer(supervisor, session, call, machine, 1, first_epoch, telemetry)
            return trainer.train(prepared.config(request, images, session.folder, checkpoint))


def _called(request: TrainRequest, prepared: Prepared, call: TrainCall) -> dict[str, object]:
    """The part of session.json that says what was called, and where."""
    return {
        **called_part(request.work, prepared.plan, call.argv),
        "system": asdict(prepared.survey.system),
        **installed_part(prepared.survey),
    }
