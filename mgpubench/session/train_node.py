"""A training on every node but the first: its images, its ranks, and its lines of loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mgpubench.config.nodes import Nodes
from mgpubench.config.train_config import TrainConfig
from mgpubench.config.train_request import TrainRequest
from mgpubench.config.types import MULTI_PROCESS_MODES
from mgpubench.errors import SessionEnded
from mgpubench.launch.loss_lines import LossReader, rank_sources
from mgpubench.launch.nodes.losses import LossSender
from mgpubench.launch.nodes.messages import PLAN
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Job, Launcher, open_supervisor
from mgpubench.session.hello import Asked, refuse_code_by_name, unplanned_devices
from mgpubench.session.node import Member, join
from mgpubench.session.nodes import Notices
from mgpubench.session.prepare import preflight
from mgpubench.session.train_prepare import Prepared, TrainAnnouncement
from mgpubench.session.training_images import TrainingImages, find_images
from mgpubench.session.workers import TRAINING_OF_IMAGES, TrainOrder, training_job

RECEIVED = "start.pt"
"""The file that the first rank of this machine receives from rank 0: a checkpoint, or weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedHere:
    """What the command line of this machine asks of a training."""

    request: TrainRequest | None
    """None if one is resumed: node 0 has its request."""
    asked: Asked
    model: str | None = None
    folders: Mapping[str, str] = field(default_factory=dict)
    """Where this machine has the images: `data` and `eval_data`, as far as they are given."""

    def request_here(self, announced: TrainRequest) -> TrainRequest:
        """Node 0's request, with the folders of this machine.

        Raises:
            RequestRefused: if it is impossible.
        """
        work, options = announced.work, announced.options
        eval_data = options.eval_data and self.folders.get("eval_data", options.eval_data)
        return TrainRequest(
            work=replace(work, data=self.folders.get("data", work.data)),
            options=replace(options, eval_data=eval_data),
        )


def take_part_in_training(
    here: AskedHere, nodes: Nodes, display: Notices, stop: StopSignal
) -> None:
    """Train with this machine's ranks, until node 0 says that the training is over.

    Raises:
        BenchError: why the training could not go on; Interrupted after a signal.
    """
    images = find_images(here.request, stop) if here.request else None
    with (
        open_supervisor(stop, TRAINING_OF_IMAGES) as supervisor,
        join(nodes, supervisor, display, stop) as member,
    ):
        devices = unplanned_devices(member.machine, here.asked.gpus)
        if not member.introduce(here.asked, devices):
            return
        announced = member.link.read(PLAN, TrainAnnouncement)
        run = announced.plan.runs[0]
        if run.mode not in MULTI_PROCESS_MODES:
            raise SessionEnded(f"node 0 has asked for the mode {run.mode!r}, which is not for this")
        refuse_code_by_name(nodes.node_rank, [run.model], [here.model])
        if images is None:
            images = find_images(here.request_here(announced.request), stop)
        facts = preflight(supervisor, announced.plan, {run.data: images.listing})[run.model]
        prepared = Prepared(supervisor, announced.plan, member.machine, member.survey, facts)
        member.agree(prepared.agreed_part(images))
        config = _config(prepared, announced, images)

        def job_for(order: TrainOrder) -> tuple[Launcher, Job]:
            return supervisor, _sending(training_job(config, supervisor, nodes.node_rank), member)

        member.make_parts(job_for, TrainOrder)


def _config(
    prepared: Prepared, announced: TrainAnnouncement, images: TrainingImages
) -> TrainConfig:
    """What this machine's ranks train. Rank 0's file, if it has one, comes to this machine."""
    request, scratch = announced.request, prepared.supervisor.scratch
    received = scratch / RECEIVED
    if request.options.pretrained is not None:
        request = replace(request, options=replace(request.options, pretrained=str(received)))
    start = received if announced.has_checkpoint else None
    # Only rank 0 writes checkpoints.
    return prepared.config(request, images, scratch, start)


def _sending(job: Job, member: Member) -> Job:
    """The job, whose lines of loss go to node 0."""
    ranks = range(job.first_rank, job.first_rank + len(job.calls))
    sender = LossSender(member.link, LossReader(rank_sources(job.folder, ranks)))
    return replace(job, watch=sender.send, finish=sender.finish)
