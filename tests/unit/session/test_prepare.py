"""What is reported about the machine before the runs begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.machine.system import Survey
from mgpubench.session.prepare import disturbances
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
