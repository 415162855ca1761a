"""What is found out before the first run: about the machine, the images and the model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import Plan
from mgpubench.config.request import Request
from mgpubench.errors import BenchError, Interrupted
from mgpubench.launch.scratch import in_scratch
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from mgpubench.machine.advice import TEMPORARY, examine
from mgpubench.machine.environment import recorded_environment
from mgpubench.machine.system import Survey, TorchBuild, describe_system
from mgpubench.results.schema import ModelFacts
from mgpubench.session.workers import (
    CHECK_COMPILER,
    CHECK_DECODER,
    DESCRIBE_TORCH,
    INSPECT_MODEL,
    TORCH,
    listing_file,
)
from mgpubench.training.data.listing import ImageListing, check_enough_images, list_images


@dataclass(frozen=True, slots=True)
class Workload:
    """What all runs of a session train, and where."""

    machine: Machine
    model: ModelFacts
    listing: ImageListing | None

    @property
    def dataset_samples(self) -> int | None:
        """Images in the folder; None for synthetic data."""
        return len(self.listing.samples) if self.listing else None


def ask_torch(supervisor: Supervisor) -> tuple[Machine, TorchBuild]:
    """What torch says about the machine, from a process that ends: this one holds no context.

    Raises:
        BenchError: if torch cannot be imported.
    """
    answer: tuple[Machine, TorchBuild] = supervisor.call(DESCRIBE_TORCH)
    return answer


def take_survey(machine: Machine | None, build: TorchBuild | None, torch_error: str = "") -> Survey:
    """Add what the operating system says to what torch says."""
    return Survey(
        system=describe_system(),
        machine=machine,
        build=build,
        torch_error=torch_error,
        environment=recorded_environment(os.environ),
    )


def survey_with_or_without_torch(stop: StopSignal) -> Survey:
    """All that can be found out. A torch that cannot be imported is a part of the answer.

    Raises:
        BenchError: Interrupted after a signal.
    """
    with open_supervisor(stop, TORCH) as supervisor:
        try:
            return take_survey(*ask_torch(supervisor))
        except Interrupted:
            raise
        except BenchError as error:
            return take_survey(None, None, error.message)


def list_data(request: Request, stop: StopSignal) -> ImageListing | None:
    """The images of a request; None for synthetic data."""
    if not request.uses_folder:
        return None
    # This takes minutes for a large folder on a slow disk, and there is nothing to lose yet.
    with stop.raising():
        return list_images(Path(request.data))


def check_images(plan: Plan, listing: ImageListing) -> None:
    """Refuse a folder with too few images for the largest global batch of a plan."""
    largest = max(config.global_batch for config in plan.runs)
    check_enough_images(len(listing.samples), largest, listing.root)


def preflight(supervisor: Supervisor, plan: Plan, listing: ImageListing | None) -> ModelFacts:
    """Check model and data as far as possible, before anything is written.

    Raises:
        BenchError: if the plan cannot be run.
    """
    first = plan.runs[0]
    if listing is not None:
        check_images(plan, listing)
        with in_scratch(supervisor.scratch):
            listing.save_samples(listing_file(supervisor))
        supervisor.call(CHECK_DECODER)
    inputs = {(config.batch_per_device, config.image_size): config for config in plan.runs}
    facts: ModelFacts = supervisor.call(
        INSPECT_MODEL,
        list(inputs.values()),
        label=f"--model {first.model}",
        hide_gpus=first.device_type == "cpu",
    )
    if first.compiled:
        supervisor.call(CHECK_COMPILER, first.device_type)
    return facts


def disturbances(survey: Survey, plan: Plan) -> Iterator[str]:
    """What slows the runs down right now. `mgpubench info` reports other problems too."""
    machine = survey.machine
    if machine is not None:
        # A plan counts its GPUs from 0. Others do not matter.
        num_used = max(len(set(config.device_indices)) for config in plan.runs)
        machine = replace(machine, gpus=machine.gpus[:num_used])
    for advice in examine(replace(survey, machine=machine)):
        if advice.code in TEMPORARY:
            yield advice.message
