"""What is done before a training starts: its images, its checkpoint, its plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mgpubench.config.machine_facts import Machine, NodeDevices
from mgpubench.config.plan import Plan, make_plan
from mgpubench.config.train_config import TrainConfig
from mgpubench.config.train_request import TrainRequest
from mgpubench.config.types import MULTI_PROCESS_MODES, Mode
from mgpubench.errors import RequestRefused
from mgpubench.format import shell_path
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from mgpubench.machine.system import Survey
from mgpubench.results.checkpoint_files import CHECKPOINTS, check_room, expected_bytes
from mgpubench.results.schema import ModelFacts
from mgpubench.results.session_folder import Session
from mgpubench.session.hello import check_devices, devices_of, devices_of_node, unplanned_devices
from mgpubench.session.nodes import Alone, open_nodes
from mgpubench.session.prepare import ask_torch, preflight, take_survey
from mgpubench.session.telemetry import open_telemetry
from mgpubench.session.trainer import TrainCall, Trainer
from mgpubench.session.training_images import MAX_NAMES, TrainingImages
from mgpubench.session.workers import (
    CHECK_PRETRAINED,
    CHECK_START,
    TRAINING_OF_IMAGES,
    listing_file,
)
from mgpubench.training.data.listing import check_enough_images, save_samples

if TYPE_CHECKING:  # it needs torch
    from mgpubench.training.checkpoint import About


def like_checkpoint(
    request: TrainRequest, path: Path, about: About, classes: Sequence[str]
) -> TrainRequest:
    """A request with the model of a checkpoint.

    Raises:
        RequestRefused: if the request, or the images, do not fit the checkpoint.
    """
    for what, wanted, its in (
        ("--model is", request.work.model, about.model),
        ("the classes are", classes, about.classes),
    ):
        if wanted is not None and wanted != its:
            raise RequestRefused(
                f"{what} {_shown(wanted)}, and {path} has {_shown(its)}",
                f"To begin with what fits of its weights: --pretrained {shell_path(path)}",
            )
    if about.epoch >= request.options.epochs:
        raise RequestRefused(
            f"{path} has {about.epoch} epochs behind it, and --epochs is {request.options.epochs}",
            "Raise --epochs.",
        )
    size = request.work.image_size or about.image_size
    return replace(request, work=replace(request.work, model=about.model, image_size=size))


def _shown(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else ", ".join(value[:MAX_NAMES])


@dataclass(frozen=True, slots=True)
class Place:
    """Where a training is made: with which processes, and on which machines."""

    supervisor: Supervisor
    nodes: Alone
    call: TrainCall
    counts: tuple[int, ...] = ()
    """Devices that were asked for on each machine before, if the training goes on."""

    def devices(self, request: TrainRequest, machine: Machine) -> tuple[NodeDevices, ...]:
        """Those of the other machines, for a request on this one.

        Raises:
            RequestRefused: if one of them does not have them.
        """
        before = dict(enumerate(self.counts))
        others = tuple(
            devices_of_node(node, request.work, theirs, (before[node],) if node in before else None)
            for node, theirs in enumerate(self.nodes.devices, start=1)
        )
        check_devices(devices_of(request.work, machine), others)
        return others

    @contextmanager
    def trainer(
        self, session: Session, machine: Machine, *, sitting: int = 1, first_epoch: int = 0
    ) -> Iterator[Trainer]:
        """What trains here, with the telemetry of the devices beside it."""
        call = self.call
        with open_telemetry(session, call.display, sitting, call.sampling) as telemetry:
            yield Trainer(
                supervisor=self.supervisor,
                nodes=self.nodes,
                session=session,
                call=call,
                machine=machine,
                sitting=sitting,
                first_epoch=first_epoch,
                telemetry=telemetry,
            )


@contextmanager
def open_place(call: TrainCall, counts: tuple[int, ...] = ()) -> Iterator[Place]:
    """The place of a training, on node 0 or on the only machine.

    Raises:
        RequestRefused: if the machines cannot meet.
    """
    with (
        open_supervisor(call.stop, TRAINING_OF_IMAGES) as supervisor,
        open_nodes(call.nodes, supervisor, call.stop, call.display) as nodes,
    ):
        yield Place(supervisor, nodes, call, counts)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainAnnouncement:
    """What node 0 says about a training, before it begins."""

    request: TrainRequest
    plan: Plan
    has_checkpoint: bool
    """True if rank 0 has a checkpoint to begin with."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known before a training starts."""

    supervisor: Supervisor
    plan: Plan
    machine: Machine
    survey: Survey
    facts: ModelFacts

    def check_start(self, request: TrainRequest, checkpoint: Path | None, call: TrainCall) -> None:
        """Refuse a checkpoint or weights that do not fit the model, and say what stays random.

        Raises:
            BenchError: if they do not fit, or cannot be found.
        """
        run, file = self.plan.runs[0], request.options.pretrained_file
        if checkpoint is not None:
            self.supervisor.call(
                CHECK_START, checkpoint, run, request.options.recipe(run.optimizer)
            )
            return
        if request.options.pretrained is None:
            return
        for notice in self.supervisor.call(CHECK_PRETRAINED, run.model, run.num_classes, file):
            call.display.notice(notice)

    def check_room(self, folder: Path) -> None:
        """Refuse a folder on a disk without room for checkpoints.

        Raises:
            RequestRefused: if there is too little.
        """
        optimizer = self.plan.runs[0].optimizer
        check_room(folder, expected_bytes(self.facts.parameter_bytes, optimizer))

    def trained_part(self, images: TrainingImages) -> dict[str, object]:
        """The part of session.json that must be the same when a training is resumed."""
        models = {self.plan.runs[0].model: asdict(self.facts)}
        return {**images.document_part(), "models": models}

    def agreed_part(self, images: TrainingImages) -> dict[str, object]:
        """What must be equal on all machines."""
        return {"classes": list(images.listing.classes), **self.trained_part(images)}

    def config(
        self, request: TrainRequest, images: TrainingImages, folder: Path, start: Path | None
    ) -> TrainConfig:
        """The configuration, once its samples are written for the workers."""
        run, listing = self.plan.runs[0], images.listing
        save_samples(images.training, listing_file(self.supervisor, run.data))
        eval_listing = None
        if images.evaluation:
            eval_listing = listing_file(self.supervisor, f"evaluation of {run.data}")
            save_samples(images.evaluation, eval_listing)
        return TrainConfig(
            run=run,
            options=request.options,
            classes=listing.classes,
            num_samples=len(images.training),
            dataset_digest=listing.digest,
            checkpoints=folder / CHECKPOINTS,
            resume_from=start,
            eval_listing=eval_listing,
        )


def prepare_training(
    place: Place, request: TrainRequest, images: TrainingImages, checkpoint: Path | None
) -> Prepared:
    """Look at the machines, plan the training, and check its model and images.

    Raises:
        BenchError: if the training cannot be done.
    """
    machine, build = ask_torch(place.supervisor)
    survey, call = take_survey(machine, build), place.call
    place.nodes.join(call.asked, unplanned_devices(machine, call.asked.gpus), survey)
    others = place.devices(request, machine)
    plan = plan_training(request, machine, len(images.listing.classes), others)
    for notice in (*plan.notices, *images.warnings):
        call.display.notice(notice)
    has_checkpoint = checkpoint is not None
    place.nodes.announce(
        TrainAnnouncement(request=request, plan=plan, has_checkpoint=has_checkpoint)
    )
    run, data = plan.runs[0], request.work.data
    facts = preflight(place.supervisor, plan, {data: images.listing})[run.model]
    share = "" if request.options.split is None else f" with --split {request.options.split:g}"
    check_enough_images(len(images.training), run.global_batch, f"{data}{share}")
    return Prepared(place.supervisor, plan, machine, survey, facts)


def plan_training(
    request: TrainRequest, machine: Machine, num_classes: int, others: tuple[NodeDevices, ...] = ()
) -> Plan:
    """The one run of a training, with the mode that was asked for or the default one.

    Raises:
        RequestRefused: if it cannot be trained, or not on several machines.
    """
    mode = choose_mode(request, machine, has_others=bool(others))
    if others and mode not in MULTI_PROCESS_MODES:
        raise RequestRefused(
            f"--mode {mode} uses one machine, and the training is on {1 + len(others)}",
            "Use --mode ddp or fsdp, or leave --nnodes out.",
        )
    work = replace(request.work, modes=(mode,), rounds=1, warmup_steps=0)
    return make_plan(work, machine, {work.data: num_classes}, others)


def choose_mode(request: TrainRequest, machine: Machine, *, has_others: bool = False) -> Mode:
    """The mode that was asked for; else ddp on two or more devices, and single on one."""
    if request.work.modes is not None:
        return request.work.modes[0]
    count = devices_of(request.work, machine).counts[0]
    return "ddp" if has_others or count > 1 else "single"
