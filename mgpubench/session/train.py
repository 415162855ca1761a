"""One call of `mgpubench train`: from a request to epochs on disk."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mgpubench.config.train_request import TrainRequest
from mgpubench.results.checkpoint_files import check_is_there
from mgpubench.results.session_folder import open_session
from mgpubench.results.training import TRAINING_FILES
from mgpubench.session.document import called_part, installed_part
from mgpubench.session.prepare import check_out
from mgpubench.session.train_prepare import (
    Prepared,
    like_checkpoint,
    open_place,
    prepare_training,
)
from mgpubench.session.trainer import TrainCall, Trained
from mgpubench.session.training_images import TrainingImages, find_images
from mgpubench.session.workers import READ_ABOUT
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
    with open_place(call) as place:
        first_epoch = 0
        if checkpoint is not None:
            about: About = place.supervisor.call(READ_ABOUT, checkpoint)
            request = like_checkpoint(request, checkpoint, about, images.listing.classes)
            first_epoch = about.epoch
        prepared = prepare_training(place, request, images, checkpoint)
        prepared.check_start(request, checkpoint, call)
        prepared.check_room(Path(request.work.out))
        place.nodes.agree(prepared.agreed_part(images))
        document = {
            **_called(request, prepared, call),
            "options": asdict(request.options),
            "resumed_from": str(checkpoint) if checkpoint else None,
            **place.nodes.document_part(prepared.plan.runs[0].ranks_per_node),
            **_images_part(images, prepared),
        }
        out, now = Path(request.work.out), datetime.now(UTC)
        with (
            open_session(out, document, now, TRAINING_FILES) as session,
            place.trainer(session, prepared.machine, first_epoch=first_epoch) as trainer,
        ):
            return trainer.train(prepared.config(request, images, session.folder, checkpoint))


def _images_part(images: TrainingImages, prepared: Prepared) -> dict[str, object]:
    """The part of session.json that says what is trained on."""
    return {"classes": list(images.listing.classes), **prepared.trained_part(images)}


def _called(request: TrainRequest, prepared: Prepared, call: TrainCall) -> dict[str, object]:
    """The part of session.json that says what was called, and where."""
    return {
        **called_part(request.work, prepared.plan, call.argv),
        "system": asdict(prepared.survey.system),
        **installed_part(prepared.survey),
    }
