"""The plan of a session on several machines: ddp takes all devices, the others those of node 0."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from mgpubench.config.machine_facts import Machine, NodeDevices, fingerprint_of
from mgpubench.config.plan import Plan, make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import RunConfig
from mgpubench.errors import RequestRefused

MakeMachine = Callable[..., Machine]


def node(machine: Machine, *counts: int) -> NodeDevices:
    device_type = "cuda" if machine.gpus else "cpu"
    return NodeDevices(machine=machine, device_type=device_type, counts=counts)


def plan_on(first: Machine, *others: NodeDevices, **options: Any) -> Plan:
    return make_plan(Request(**options), first, others=others)


def runs_of(plan: Plan) -> dict[str, RunConfig]:
    return {run.label: run for run in plan.runs if run.round == 1}


def test_ddp_takes_the_devices_of_all_machines(machine: MakeMachine) -> None:
    runs = runs_of(plan_on(machine(4), node(machine(2), 2)))
    assert sorted(runs) == ["ddp x6 on 2 machines", "dp x4", "single x1"]
    ddp = runs["ddp x6 on 2 machines"]
    assert (ddp.num_devices, ddp.world_size, ddp.num_nodes) == (6, 6, 2)
    assert ddp.devices_per_node == ddp.ranks_per_node == (4, 2)
    assert ddp.device_indices == (0, 1, 2, 3, 0, 1)
    assert ddp.indices_by_node == [(0, 1, 2, 3), (0, 1)]
    assert ddp.global_batch == 6 * ddp.batch_per_device


def test_the_others_stay_on_node_0(machine: MakeMachine) -> None:
    runs = runs_of(plan_on(machine(4), node(machine(2), 2)))
    for label in ("single x1", "dp x4"):
        assert runs[label].num_nodes == 1
        assert runs[label].ranks_per_node == (1,)
    assert runs["dp x4"].indices_by_node == [(0, 1, 2, 3)]


def test_counts_of_all_machines_are_taken_in_their_order(machine: MakeMachine) -> None:
    runs = runs_of(plan_on(machine(4), node(machine(2), 1, 2), modes=("ddp",), gpus=(1, 4)))
    assert sorted(run.devices_per_node for run in runs.values()) == [(1, 1), (4, 2)]


def test_one_device_on_each_machine_is_no_passthrough(machine: MakeMachine) -> None:
    (ddp,) = runs_of(plan_on(machine(1), node(machine(1), 1), modes=("ddp",))).values()
    assert (ddp.effective_mode, ddp.num_devices) == ("ddp", 2)


def test_threads_and_loader_workers_fit_the_smallest_machine(machine: MakeMachine) -> None:
    first, other = machine(2, usable_cores=32), machine(4, usable_cores=8)
    (ddp,) = runs_of(plan_on(first, node(other, 4), modes=("ddp",))).values()
    assert ddp.threads_per_rank == 2  # 8 cores / 4 ranks
    assert ddp.workers_per_device == 2


def test_a_global_batch_is_shared_by_all_devices(machine: MakeMachine) -> None:
    other = node(machine(2), 2)
    (ddp,) = runs_of(plan_on(machine(1), other, modes=("ddp",), global_batch=9)).values()
    assert ddp.batch_per_device == 3
    with pytest.raises(RequestRefused, match="--global-batch 8 cannot be shared equally by 3"):
        plan_on(machine(1), other, modes=("ddp",), global_batch=8)


def test_too_many_ranks_on_another_machine_are_oversubscribed(machine: MakeMachine) -> None:
    plan = plan_on(machine(2), node(machine(1), 2), gpus=(2,), oversubscribe=True, modes=("ddp",))
    (ddp,) = runs_of(plan).values()
    assert ddp.effective_mode == "oversubscribed"
    assert ddp.device_indices == (0, 1, 0, 0)


def test_slow_gpus_of_another_machine_are_noticed(machine: MakeMachine) -> None:
    other = node(machine(2, (7, 0)), 2)
    plan = plan_on(machine(2), other, modes=("ddp",), precision="amp-bf16")
    assert any("bf16 is emulated" in notice for notice in plan.notices)


def test_more_rounds_keep_the_devices_of_all_machines(machine: MakeMachine) -> None:
    plan = plan_on(machine(2), node(machine(2), 2), rounds=1).with_rounds(3)
    assert sum(run.devices_per_node == (2, 2) for run in plan.runs) == 3
    assert len(plan.with_first_round_only().runs) == plan.num_configurations == 3


def test_machines_that_are_alike_are_identified_by_the_first(machine: MakeMachine) -> None:
    one = machine(2)
    other = dataclasses.replace(
        one, gpus=tuple(dataclasses.replace(gpu, uuid=f"other-{gpu.uuid}") for gpu in one.gpus)
    )
    assert fingerprint_of([one, other]) == one.fingerprint != other.fingerprint


def test_unequal_machines_are_identified_together(machine: MakeMachine) -> None:
    one, two = machine(1), machine(2)
    assert fingerprint_of([one]) == one.fingerprint
    together = fingerprint_of([one, two])
    assert len(together) == 8
    assert len({together, fingerprint_of([two, one]), one.fingerprint, two.fingerprint}) == 4
