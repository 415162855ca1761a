"""The runs of a session of collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from mgpubench.config.comm_plan import CommConfig, CommPlan, make_comm_plan, whole_elements
from mgpubench.config.comm_request import OPERATIONS, CommOptions, CommRequest
from mgpubench.config.machine_facts import Machine, NodeDevices
from mgpubench.config.request import Request
from mgpubench.errors import RequestRefused

MakeMachine = Callable[..., Machine]


def request(own: dict[str, Any] | None = None, **work: Any) -> CommRequest:
    return CommRequest(work=Request(**work), options=CommOptions(**(own or {})))


def cpu_plan(machine: Machine, buckets: tuple[int, ...] = (), **own: Any) -> CommPlan:
    model = {"model": "mlp"} if buckets else {}
    return make_comm_plan(request(own, device="cpu", seed=0, **model), machine, buckets)


def first(plan: CommPlan, operation: str) -> CommConfig:
    return next(config for config in plan.runs if config.operation == operation)


def test_every_operation_runs_once_in_each_of_six_rounds(machine: MakeMachine) -> None:
    plan = cpu_plan(machine())
    assert Counter((run.run.round, run.operation) for run in plan.runs) == {
        (number, operation): 1 for number in range(1, 7) for operation in OPERATIONS
    }
    assert [run.run.position for run in plan.runs] == list(range(1, 61))
    assert {(run.run.num_devices, run.run.backend) for run in plan.runs} == {(2, "gloo")}


def test_the_order_is_drawn_and_sizes_have_orders_of_their_own(machine: MakeMachine) -> None:
    plan = cpu_plan(machine())
    assert plan == cpu_plan(machine())
    orders = [run.sizes for run in plan.runs if run.operation == "all-reduce"]
    assert len(set(orders)) > 1
    assert {tuple(sorted(sizes)) for sizes in orders} == {tuple(4**n for n in range(6, 13))}
    drawn = [run.operation for run in plan.runs]
    assert drawn != sorted(drawn, key=OPERATIONS.index)


def test_gpus_have_nccl_larger_sizes_and_a_spin_up(machine: MakeMachine) -> None:
    plan = make_comm_plan(request(), machine(8))
    config = first(plan, "broadcast")
    assert (config.run.backend, config.run.num_devices) == ("nccl", 8)
    assert max(config.sizes) == 256 * 2**20
    assert config.run.spin_up_s > 0
    assert plan.notices == ()


def test_several_numbers_of_devices(machine: MakeMachine) -> None:
    plan = make_comm_plan(request({"operations": ("reduce",)}, gpus=(2, 4), rounds=1), machine(8))
    assert sorted(run.label for run in plan.runs) == ["reduce x2", "reduce x4"]


def test_one_device_on_each_of_several_machines_is_enough(machine: MakeMachine) -> None:
    with pytest.raises(RequestRefused, match="--gpus 1: on one device there is nobody"):
        request(gpus=(1,))
    wanted = CommRequest(work=Request(gpus=(1,)), options=CommOptions(), num_nodes=2)
    other = NodeDevices(machine=machine(4), device_type="cuda", counts=(3,))
    plan = make_comm_plan(wanted, machine(2), others=(other,))
    config = first(plan, "reduce")
    assert (config.label, config.run.world_size) == ("reduce x4 on 2 machines", 4)
    assert [config.run.ranks_of_node(node) for node in range(2)] == [range(1), range(1, 4)]
    assert config.run.device_indices == (0, 0, 1, 2)


def test_without_a_gpu_it_runs_on_the_cpu_and_says_so(machine: MakeMachine) -> None:
    plan = make_comm_plan(request(), machine())
    assert plan.notices == (
        "no usable GPU (Found no NVIDIA driver on your system): running on the CPU",
    )


def test_one_gpu_is_refused(machine: MakeMachine) -> None:
    with pytest.raises(RequestRefused, match="only one GPU, and nobody to exchange data with"):
        make_comm_plan(request(), machine(1))


def test_more_gpus_than_there_are_are_refused(machine: MakeMachine) -> None:
    with pytest.raises(RequestRefused, match="--gpus 4 needs 4 GPUs and 2 are usable"):
        make_comm_plan(request(gpus=(4,)), machine(2))


def test_gpus_that_are_not_there_are_refused_with_a_hint_of_this_command(
    machine: MakeMachine,
) -> None:
    with pytest.raises(RequestRefused, match="--gpus 2 needs GPUs and 0 are usable") as refusal:
        make_comm_plan(request(gpus=(2,)), machine())
    assert refusal.value.hint == "Add --device cpu to run it on the CPU."


def test_too_many_rounds_are_refused(machine: MakeMachine) -> None:
    with pytest.raises(RequestRefused, match="--rounds 10001 makes more than 100000 runs"):
        make_comm_plan(request(device="cpu", rounds=10001), machine())


def test_operations_that_the_backend_lacks_are_left_out(machine: MakeMachine) -> None:
    plan = make_comm_plan(request(device="cpu"), machine(), lacking=["reduce-scatter"])
    assert {run.operation for run in plan.runs} == set(OPERATIONS) - {"reduce-scatter"}


def test_the_sizes_of_buckets_are_counted(machine: MakeMachine) -> None:
    config = first(cpu_plan(machine(), buckets=(4096, 400, 4096)), "all-reduce")
    assert sorted(config.sizes) == [400, 4096]
    assert config.buckets == ((400, 1), (4096, 2))
    assert (config.model, config.memory_option) == ("mlp", "--model mlp")


def test_a_barrier_has_no_size(machine: MakeMachine) -> None:
    config = first(cpu_plan(machine(), buckets=(4096,)), "barrier")
    assert (config.sizes, config.buckets) == ((0,), ())


@pytest.mark.parametrize(
    ("size", "operation", "ranks", "expected"),
    [
        (4096, "all-reduce", 3, 4096),
        (4098, "all-reduce", 3, 4096),
        (4096, "all-gather", 3, 4092),
        (4, "scatter", 3, 12),
        (4096, "all-to-all", 4, 4096),
    ],
)
def test_every_rank_has_as_many_whole_elements(
    size: int, operation: Any, ranks: int, expected: int
) -> None:
    assert whole_elements(size, operation, ranks) == expected


def test_large_sizes_have_fewer_calls_in_a_block(machine: MakeMachine) -> None:
    config = first(cpu_plan(machine(), calls=20), "all-reduce")
    calls = {size: config.block_calls(size * 2**20) for size in (1, 4, 16, 64, 256)}
    assert calls == {1: 20, 4: 16, 16: 4, 64: 1, 256: 1}
    assert config.block_calls(0) == 20
