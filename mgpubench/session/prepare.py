"""What is found out before the first run: about the machine, the images and the model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mgpubench.config.machine_facts import Machine, NodeDevices
from mgpubench.config.plan import Plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import RunConfig
from mgpubench.errors import BenchError, Interrupted
from mgpubench.launch.scratch import in_scratch
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from mgpubench.machine.advice import COSTLY_VARIABLES, TEMPORARY, examine
from mgpubench.machine.environment import recorded_environment, waiting_on_cpu
from mgpubench.machine.host import may_have_gpu
from mgpubench.machine.system import Survey, TorchBuild, describe_system
from mgpubench.results.schema import ModelFacts
from mgpubench.results.session_folder import check_writable
from mgpubench.session.workers import (
    CHECK_COMM_HOOK,
    CHECK_COMPILER,
    CHECK_DECODER,
    CHECK_DEEPSPEED,
    CHECK_SHARDING,
    DESCRIBE_TORCH,
    INSPECT_MODEL,
    TORCH,
    listing_file,
)
from mgpubench.training.data.listing import (
    ImageListing,
    check_enough_images,
    check_outside,
    list_images,
)


@dataclass(frozen=True, slots=True)
class Workload:
    """What the runs of a session train, and where."""

    machine: Machine
    environment: str
    """Digest of the environment, without what variants set."""
    models: dict[str, ModelFacts]
    """By the name of the model."""
    listings: dict[str, ImageListing]
    """By the path of the image folder."""
    others: tuple[NodeDevices, ...] = ()
    """The other machines that take part."""


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
        environment={
            **recorded_environment(os.environ),
            **waiting_on_cpu(os.environ, may_have_gpu=may_have_gpu()),
            **{name: os.environ[name] for name in COSTLY_VARIABLES if name in os.environ},
        },
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


def check_out(request: Request) -> None:
    """Refuse a folder for results that cannot be written, or lies among the images.

    Raises:
        RequestRefused: if it is so.
    """
    out = Path(request.out)
    for part in request.parts:
        if part.uses_folder:
            check_outside(out, Path(part.data))
    check_writable(out)


def list_data(request: Request, stop: StopSignal) -> dict[str, ImageListing]:
    """The images of each folder that a request uses, by the folder's path."""
    folders = dict.fromkeys(part.data for part in request.parts if part.uses_folder)
    # This takes minutes for a large folder on a slow disk, and there is nothing to lose yet.
    with stop.raising():
        return {folder: list_images(Path(folder)) for folder in folders}


def check_images(plan: Plan, listings: Mapping[str, ImageListing]) -> None:
    """Refuse a folder with too few images for the largest global batch of a plan."""
    for folder, listing in listings.items():
        largest = max(config.global_batch for config in plan.runs if config.data == folder)
        check_enough_images(len(listing.samples), largest, listing.root)


def preflight(
    supervisor: Supervisor, plan: Plan, listings: Mapping[str, ImageListing]
) -> dict[str, ModelFacts]:
    """Check models and data as far as possible, before anything is written.

    Raises:
        BenchError: if the plan cannot be run.
    """
    check_images(plan, listings)
    if listings:
        supervisor.call(CHECK_DECODER)
    facts = {
        model: _inspect(supervisor, [config for config in plan.runs if config.model == model])
        for model in dict.fromkeys(config.model for config in plan.runs)
    }
    if compiled := [config for config in plan.runs if config.compiled]:
        device_type = compiled[0].device_type
        supervisor.call(CHECK_COMPILER, device_type, hide_gpus=device_type == "cpu")
    hooks = {config.ddp.comm_hook: config for config in plan.runs if config.ddp.comm_hook != "none"}
    sharded = {config.model: config for config in plan.runs if config.mode == "fsdp"}
    engines = {config.accumulate: config for config in plan.runs if config.mode == "deepspeed"}
    for check, configs in (
        (CHECK_COMM_HOOK, hooks),
        (CHECK_SHARDING, sharded),
        (CHECK_DEEPSPEED, engines),
    ):
        for config in configs.values():
            supervisor.call(check, config, hide_gpus=config.device_type == "cpu")
    return facts


def _inspect(supervisor: Supervisor, configs: Sequence[RunConfig]) -> ModelFacts:
    first = configs[0]
    inputs = {
        (config.micro_batch_per_device, config.image_size, config.precision): config
        for config in configs
    }
    facts: ModelFacts = supervisor.call(
        INSPECT_MODEL,
        list(inputs.values()),
        label=f"--model {first.model}",
        hide_gpus=first.device_type == "cpu",
    )
    return facts


def save_listings(supervisor: Supervisor, listings: Mapping[str, ImageListing]) -> None:
    """Write the samples of each folder for the workers of a supervisor."""
    with in_scratch(supervisor.scratch):
        for folder, listing in listings.items():
            listing.save_samples(listing_file(supervisor, folder))


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
