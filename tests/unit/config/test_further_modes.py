"""Modes that run only if they are named: how they are planned, and what goes with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import DdpOptions, RunConfig
from mgpubench.config.types import DEFAULT_MODES, EFFECTIVE_MODES, MODES

MakeMachine = Callable[..., Machine]


def planned(machine: Machine, **options: Any) -> dict[str, RunConfig]:
    """The runs of the first round by label."""
    plan = make_plan(Request(**options), machine)
    return {run.label: run for run in plan.runs if run.round == 1}


def test_all_modes_are_the_three_that_everyone_compares(machine: MakeMachine) -> None:
    assert set(planned(machine(2))) == {"single x1", "dp x2", "ddp x2"}
    assert MODES[:3] == DEFAULT_MODES
    assert all(mode in EFFECTIVE_MODES[mode] for mode in MODES)


@pytest.mark.parametrize("mode", ["fsdp", "deepspeed"])
def test_they_have_the_processes_workers_and_batches_of_ddp(
    machine: MakeMachine, mode: Any
) -> None:
    work: dict[str, Any] = {"data": "photos", "gpus": (4,), "workers_per_gpu": 2}
    runs = planned(machine(4), modes=("ddp", mode), ddp=DdpOptions(zero=True), **work)
    ddp, other = runs["ddp x4"], runs[f"{mode} x4"]
    for name in ("world_size", "backend", "threads_per_rank", "workers_per_rank", "global_batch"):
        assert getattr(other, name) == getattr(ddp, name), name
    assert (other.world_size, other.backend, other.workers_per_rank) == (4, "nccl", 2)
    assert other.effective_mode == mode
    assert (ddp.options, other.options) == ("zero=true", "")


def test_fsdp_takes_the_backend_and_names_another_one(machine: MakeMachine) -> None:
    run = planned(machine(2), modes=("fsdp",), backend="gloo")["fsdp x2"]
    assert (run.backend, run.options) == ("gloo", "backend=gloo")


def test_fsdp_can_be_oversubscribed(machine: MakeMachine) -> None:
    run = planned(machine(1), modes=("fsdp",), gpus=(2,), oversubscribe=True)["fsdp x2"]
    assert (run.effective_mode, run.backend) == ("oversubscribed", "gloo")


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("mode", ["fsdp", "deepspeed"])
def test_on_one_device_they_say_what_they_measure(
    machine: MakeMachine, mode: Any, device: Any
) -> None:
    plan = make_plan(Request(modes=(mode,), gpus=(1,), device=device), machine(1))
    assert plan.runs[0].effective_mode == mode
    assert plan.notices[-1] == (
        f"{mode} on one device has nothing to share out: it measures what its copies cost"
    )
    compiles = mode == "deepspeed" and device == "cpu"
    assert len(plan.notices) == 1 + compiles
    assert ("deepspeed compiles a part of itself" in plan.notices[0]) == compiles


def test_what_fsdp_lacks_does_not_matter_to_others(machine: MakeMachine) -> None:
    assert planned(machine(2), compiled=True, modes=("ddp",))
    assert planned(machine(2), channels_last=True)
