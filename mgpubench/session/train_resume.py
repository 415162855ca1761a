"""Going on with a training in its own folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgpubench.config.request_checks import UnequalShares
from mgpubench.config.train_request import (
    TrainOptions,
    TrainRequest,
    refuse_pretrained_at_resume,
)
from mgpubench.errors import RequestRefused
from mgpubench.format import shell_path
from mgpubench.launch.supervisor import Supervisor
from mgpubench.results.checkpoint_files import CHECKPOINTS, find_checkpoints, remove_unfinished
from mgpubench.results.read import is_from_future
from mgpubench.results.session_folder import SESSION_JSON, Session, reopen_session
from mgpubench.results.training import EPOCHS_CSV, TRAINING_FILES, last_sitting
from mgpubench.session.document import SavedSession, load_session
from mgpubench.session.nodes import dismiss
from mgpubench.session.resume import check_unchanged
from mgpubench.session.train_prepare import like_checkpoint, open_place, prepare_training
from mgpubench.session.trainer import TrainCall, Trained
from mgpubench.session.training_images import find_images
from mgpubench.session.workers import READ_ABOUT

if TYPE_CHECKING:  # it needs torch
    from mgpubench.training.checkpoint import About

MAY_CHANGE = frozenset({"modes", "gpus", "device", "workers_per_gpu", "epochs", "timeout_s", "out"})
"""Names of the options that a resumed training may have with another value."""


DECIDED_BY_PLAN = ("model", "image_size", "precision", "seed")
"""Options that the plan has decided if they were not given. They may be repeated, too."""

MOST_DEVICES = 64
"""Numbers of devices up to this one are named in a hint."""


@dataclass(frozen=True, slots=True)
class SavedTraining:
    """A training that can be resumed: its session.json, and what was asked for."""

    session: SavedSession
    request: TrainRequest

    @property
    def counts(self) -> tuple[int, ...]:
        """Devices of each machine when it began, if it had several and their numbers were given."""
        is_given = self.request.work.gpus is not None
        return self.session.plan.runs[0].devices_per_node if is_given else ()


def newest_training(out: Path) -> Path:
    """The newest training under a folder.

    Raises:
        RequestRefused: if there is none.
    """
    found = [file.parent for file in out.glob(f"*/{EPOCHS_CSV}") if _is_training(file.parent)]
    if not found:
        raise RequestRefused(
            f"--resume last: {out} has no training", "Start one with: mgpubench train --data FOLDER"
        )
    # One from the future was made while the clock was wrong, and nobody knows when that was.
    return max(found, key=lambda folder: (not is_from_future(folder), folder.name))


def _is_training(folder: Path) -> bool:
    return (folder / SESSION_JSON).is_file()


def load_training(folder: Path) -> SavedTraining:
    """Read back what a training was asked for.

    Raises:
        RequestRefused: if the folder has no training that this mgpubench can go on with.
    """
    if not folder.exists():
        raise RequestRefused(
            f"--resume {folder} does not exist",
            "Give the folder of a training, a checkpoint, or last for the newest training.",
        )
    saved = load_session(folder)
    if not saved.is_training:
        raise RequestRefused(
            f"--resume {folder} is a session of mgpubench run",
            f"Go on with it: mgpubench run --resume {shell_path(folder)}",
        )
    options = TrainOptions(**saved.document["options"])
    return SavedTraining(saved, TrainRequest(work=saved.request, options=options))


def resumed_request(
    saved: SavedTraining, given: Mapping[str, Any], options_of: Mapping[str, str]
) -> TrainRequest:
    """What a resumed training is asked for: as before, but for the options that may change.

    `given` holds the values of the options on the command line, by the names of their fields, and
    `options_of` each field's option, as a person types it. The global batch stays as it was.

    Raises:
        RequestRefused: if an option has another value than before, and may not.
    """
    work, options = saved.request.work, saved.request.options
    run = saved.session.plan.runs[0]
    before = {**asdict(work), **asdict(work.ddp), **asdict(options)}
    before |= {name: getattr(run, name) for name in DECIDED_BY_PLAN if before[name] is None}
    for name, value in given.items():
        if name not in MAY_CHANGE and not _is_same(value, before[name]):
            if name == "pretrained":
                raise refuse_pretrained_at_resume()
            raise RequestRefused(
                f"--resume {saved.session.folder}: {options_of[name]} was "
                f"{_shown(before[name])}, and cannot be {_shown(value)} now",
                "Only --mode, --gpus, --device, --workers-per-gpu, --epochs and --timeout may "
                "change.",
            )
    changed = {name: value for name, value in given.items() if name in MAY_CHANGE}
    epochs = changed.pop("epochs", options.epochs)
    with keeping_batch(saved):
        return TrainRequest(
            work=replace(work, **changed, batch_per_gpu=None, global_batch=run.global_batch),
            options=replace(options, epochs=epochs),
        )


@contextmanager
def keeping_batch(saved: SavedTraining) -> Iterator[None]:
    """Say which numbers of devices can share the global batch, since it stays as it was."""
    try:
        yield
    except UnequalShares as error:
        run = saved.session.plan.runs[0]
        counts = [
            str(count)
            for count in range(1, MOST_DEVICES + 1)
            if run.global_batch % (count * run.accumulate) == 0
        ]
        raise RequestRefused(
            f"--resume {saved.session.folder}: {error.message}",
            f"The global batch stays as it was. It can be shared by {', '.join(counts)} devices.",
        ) from error


def _is_same(value: object, before: object) -> bool:
    """True for equal values, and for two ways to write a path, such as `photos` and `photos/`."""
    if isinstance(value, str) and isinstance(before, str) and value and before:
        return os.path.abspath(value) == os.path.abspath(before)
    return value == before


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not given" if value in (None, "") else str(value)


def resume_training(saved: SavedTraining, request: TrainRequest, call: TrainCall) -> Trained:
    """Train from the last checkpoint to the last epoch, in the same folder.

    Raises:
        BenchError: if another process trains there, if the images have changed, if the checkpoint
            cannot be read, or if a rank failed; Interrupted after a signal.
    """
    folder = saved.session.folder
    with reopen_session(folder, saved.session.id, TRAINING_FILES) as session:
        _mend(session, call)
        start, first_epoch = _last_checkpoint(folder, saved)
        if first_epoch >= request.options.epochs:
            return _nothing_missing(folder, first_epoch, call)
        sitting = 1 + last_sitting(folder)
        images = find_images(request, call.stop)
        with open_place(call, saved.counts) as place:
            if start is not None:
                about = read_own_about(place.supervisor, start, first_epoch)
                request = like_checkpoint(request, start, about, images.listing.classes)
            with keeping_batch(saved):
                prepared = prepare_training(place, request, images, start)
            check_unchanged(saved.session, prepared.trained_part(images))
            prepared.check_start(request, start, call)
            prepared.check_room(folder)
            place.nodes.agree(prepared.agreed_part(images))
            config = prepared.config(request, images, folder, start)
            with place.trainer(
                session, prepared.machine, sitting=sitting, first_epoch=first_epoch
            ) as trainer:
                return trainer.train(config)


def _mend(session: Session, call: TrainCall) -> None:
    """Remove what an ended training has left unfinished, and say so."""
    removed = remove_unfinished(session.folder / CHECKPOINTS)
    for notice in (
        *session.repairs,
        *(f"{path} was unfinished, and was removed" for path in removed),
    ):
        call.display.notice(notice)


def _nothing_missing(folder: Path, epochs: int, call: TrainCall) -> Trained:
    call.display.notice(
        f"nothing is missing in {folder}: {epochs} epochs are done; "
        f"--epochs {epochs + 1} trains another one"
    )
    dismiss(call.nodes, call.stop, call.display)
    return Trained(folder, [])


def read_own_about(supervisor: Supervisor, path: Path, epoch: int) -> About:
    """What the checkpoint of an epoch is of. A damaged one is refused before anything else.

    Raises:
        RequestRefused: if it cannot be read, or was renamed.
    """
    about: About = supervisor.call(READ_ABOUT, path)
    if about.epoch != epoch:
        raise RequestRefused(
            f"{path} is the checkpoint of epoch {about.epoch}, and was renamed",
            "Give it its name back, or move it away.",
        )
    return about


def _last_checkpoint(folder: Path, saved: SavedTraining) -> tuple[Path | None, int]:
    """The checkpoint to go on from, and the epochs behind it."""
    found = find_checkpoints(folder / CHECKPOINTS)
    if found:
        epoch, path = list(found.items())[-1]
        return path, epoch
    source = saved.session.document.get("resumed_from")
    if source is None:
        return None, 0
    raise RequestRefused(
        f"--resume {folder} has no checkpoint of its own yet",
        f"Begin again with: mgpubench train --resume {source}",
    )
