"""What is reported about the machine before the runs begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import DdpOptions
from mgpubench.machine.system import Survey
from mgpubench.results.schema import ModelFacts
from mgpubench.session.prepare import disturbances, preflight
from tests.unit.machine.test_advice import BUILD, STATE, SYSTEM


@pytest.mark.parametrize(
    ("request_", "notes"),
    [
        (Request(gpus=(2,)), ["processes compute on GPU 1"]),
        (Request(gpus=(1,)), []),
        (Request(device="cpu"), []),
    ],
)
def test_only_gpus_that_take_part_are_mentioned(
    machine: Callable[..., Machine], request_: Request, notes: list[str]
) -> None:
    found = machine(2)
    survey = Survey(
        system=replace(SYSTEM, gpu_state=(STATE,), gpu_processes=("GPU-1",)),
        machine=found,
        build=BUILD,
        torch_error="",
        environment={"NCCL_DEBUG": "INFO"},  # `mgpubench info` advises on it, and it is not new
    )
    assert list(disturbances(survey, make_plan(request_, found))) == notes


class Workers:
    """A supervisor that only remembers which of its processes see GPUs."""

    def __init__(self) -> None:
        self.see_gpus: dict[str, bool] = {}

    def call(
        self, target: str, *args: object, label: str = "", hide_gpus: bool = False
    ) -> ModelFacts:
        self.see_gpus[target.partition(":")[2]] = not hide_gpus
        return ModelFacts(num_parameters=1, parameter_bytes=4, num_classes=1000, digest="")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_is_tried_before_cpu_runs_sees_no_gpus(
    machine: Callable[..., Machine], device: Any
) -> None:
    request = Request(
        device=device, modes=("single", "ddp"), compiled=True, ddp=DdpOptions(comm_hook="fp16")
    )
    supervisor: Any = Workers()
    preflight(supervisor, make_plan(request, machine(2)), {})
    names = ("inspect_model", "check_compiler", "check_hook")
    assert supervisor.see_gpus == dict.fromkeys(names, device == "cuda")
