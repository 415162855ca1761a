"""From a request and a machine to runs: every field of a run, and the order of the runs."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest

from mgpubench.config.machine_facts import Gpu, Machine
from mgpubench.config.order import draw_order
from mgpubench.config.plan import Plan, make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import DdpOptions, RunConfig
from mgpubench.errors import RequestRefused

MakeMachine = Callable[..., Machine]


def configurations(plan: Plan) -> dict[str, RunConfig]:
    """The runs of the first round by label."""
    return {run.label: run for run in plan.runs if run.round == 1}


def runs_on(machine: Machine, **options: Any) -> dict[str, RunConfig]:
    return configurations(make_plan(Request(**options), machine))


def column(runs: dict[str, RunConfig], name: str) -> dict[str, Any]:
    return {label: getattr(run, name) for label, run in sorted(runs.items())}


# Refusals that need the machine.


def refusal(machine: Machine, **options: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        make_plan(Request(**options), machine)
    return caught.value


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"gpus": (8,)}, "--gpus 8"),
        ({"gpus": (2, 4)}, "--gpus 2,4"),
        ({"gpus": (2,), "device": "auto"}, "--gpus 2"),
        ({"device": "cuda"}, "--device cuda"),
        ({"device": "cuda", "smoke": True}, "--device cuda"),
        ({"device": "cuda", "gpus": (2,)}, "--gpus 2"),
    ],
    ids=str,
)
def test_requested_gpus_that_are_missing_are_refused(
    machine: MakeMachine, options: dict[str, Any], asked: str
) -> None:
    error = refusal(machine(0), **options)
    assert error.message == (
        f"{asked} needs GPUs and 0 are usable: Found no NVIDIA driver on your system"
    )
    assert "--device cpu" in error.hint


@pytest.mark.parametrize("value", ["", "-1", "7"])
def test_the_refusal_shows_the_variable_that_hides_the_gpus(
    machine: MakeMachine, value: str
) -> None:
    error = refusal(machine(0, cuda_visible_devices=value), gpus=(2,))
    assert error.message.endswith(f"; CUDA_VISIBLE_DEVICES={value}")


def test_more_gpus_than_are_visible_are_refused(machine: MakeMachine) -> None:
    error = refusal(machine(2), gpus=(1, 4))
    assert error.message == "--gpus 1,4 needs 4 GPUs and 2 are usable"
    error = refusal(machine(1, cuda_visible_devices="3"), gpus=(2,))
    assert error.message == "--gpus 2 needs 2 GPUs and 1 is usable; CUDA_VISIBLE_DEVICES=3"


def test_a_gpu_that_is_listed_twice_is_one_gpu(machine: MakeMachine) -> None:
    """C34: CUDA_VISIBLE_DEVICES=0,0."""
    twice = machine(1).gpus * 2
    error = refusal(machine(gpus=twice, cuda_visible_devices="0,0"), gpus=(2,))
    assert error.message == "--gpus 2 needs 2 GPUs and 1 is usable; CUDA_VISIBLE_DEVICES=0,0"
    assert sorted(runs_on(machine(gpus=twice))) == ["ddp x1", "single x1"]


def test_a_global_batch_is_checked_against_the_gpus_that_are_found(machine: MakeMachine) -> None:
    error = refusal(machine(8), global_batch=9)
    assert error.message == "--global-batch 9 cannot be shared equally by 8 devices"


def test_tf32_is_refused_below_capability_8(machine: MakeMachine) -> None:
    error = refusal(machine(1, capability=(7, 0)), precision="tf32")
    assert error.message == (
        "--precision tf32 needs GPUs of compute capability 8.0 or higher, not NVIDIA X"
    )
    assert error.hint == "Use --precision fp32, or leave the option out."


def test_tf32_is_refused_if_auto_chooses_the_cpu(machine: MakeMachine) -> None:
    assert "not the CPU" in refusal(machine(0), precision="tf32").message


# The fields of a run.


def test_all_modes_on_two_gpus(machine: MakeMachine) -> None:
    runs = runs_on(machine(2))
    assert column(runs, "num_devices") == {"ddp x2": 2, "dp x2": 2, "single x1": 1}
    assert column(runs, "world_size") == {"ddp x2": 2, "dp x2": 1, "single x1": 1}
    assert column(runs, "device_indices") == {"ddp x2": (0, 1), "dp x2": (0, 1), "single x1": (0,)}
    assert column(runs, "effective_mode") == {"ddp x2": "ddp", "dp x2": "dp", "single x1": "single"}
    assert column(runs, "backend") == {"ddp x2": "nccl", "dp x2": "", "single x1": ""}
    assert column(runs, "batch_per_device") == {"ddp x2": 64, "dp x2": 64, "single x1": 64}
    assert column(runs, "global_batch") == {"ddp x2": 128, "dp x2": 128, "single x1": 64}
    assert set(column(runs, "device_type").values()) == {"cuda"}
    assert set(column(runs, "scaling").values()) == {"weak"}


def test_strong_scaling_gives_every_mode_the_same_global_batch(machine: MakeMachine) -> None:
    runs = runs_on(machine(4), gpus=(2, 4), global_batch=64)
    assert column(runs, "batch_per_device") == {
        "ddp x2": 32, "ddp x4": 16, "dp x2": 32, "dp x4": 16, "single x1": 64,
    }  # fmt: skip
    assert set(column(runs, "global_batch").values()) == {64}
    assert set(column(runs, "scaling").values()) == {"strong"}


def test_several_counts_give_one_single_and_a_dp_and_ddp_for_each(machine: MakeMachine) -> None:
    assert sorted(runs_on(machine(8), gpus=(2, 8))) == [
        "ddp x2", "ddp x8", "dp x2", "dp x8", "single x1",
    ]  # fmt: skip


def test_all_visible_gpus_are_the_default(machine: MakeMachine) -> None:
    assert runs_on(machine(4), modes=("ddp",))["ddp x4"].num_devices == 4


def test_two_devices_are_the_default_on_a_cpu(machine: MakeMachine) -> None:
    runs = runs_on(machine(8), device="cpu")
    assert column(runs, "num_devices") == {"ddp x2": 2, "dp x2": 2, "single x1": 1}
    assert column(runs, "effective_mode") == {
        "ddp x2": "ddp", "dp x2": "cpu-replicas", "single x1": "single",
    }  # fmt: skip
    assert column(runs, "backend") == {"ddp x2": "gloo", "dp x2": "", "single x1": ""}
    assert set(column(runs, "device_indices").values()) == {()}
    assert set(column(runs, "device_type").values()) == {"cpu"}


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_dp_on_one_device_is_a_passthrough(machine: MakeMachine, device: Any) -> None:
    request = Request(modes=("dp",), gpus=(1,), device=device)
    plan = make_plan(request, machine(1))
    assert configurations(plan)["dp x1"].effective_mode == "passthrough"
    assert plan.notices == (
        "dp on one device is a bare pass-through to the module (effective_mode=passthrough): it "
        "measures nothing of DataParallel",
    )


def test_dp_is_left_out_on_one_device_unless_named(machine: MakeMachine) -> None:
    plan = make_plan(Request(), machine(1))
    assert sorted(configurations(plan)) == ["ddp x1", "single x1"]
    assert plan.notices == (
        "dp is left out on one device, where torch.nn.DataParallel just calls the module; name it "
        "with --mode dp to run it anyway",
    )


def test_replicas_that_share_a_gpu_are_oversubscribed(machine: MakeMachine) -> None:
    runs = runs_on(machine(1), gpus=(2,), oversubscribe=True)
    assert column(runs, "effective_mode") == {
        "ddp x2": "oversubscribed", "dp x2": "oversubscribed", "single x1": "single",
    }  # fmt: skip
    # NCCL refuses two ranks on one GPU.
    assert column(runs, "backend") == {"ddp x2": "gloo", "dp x2": "", "single x1": ""}
    assert column(runs, "device_indices") == {"ddp x2": (0, 0), "dp x2": (0, 0), "single x1": (0,)}


def test_oversubscribe_changes_nothing_if_there_are_enough_gpus(machine: MakeMachine) -> None:
    assert runs_on(machine(2), oversubscribe=True, seed=0) == runs_on(machine(2), seed=0)


def test_threads_of_the_ranks_add_up_to_the_cores(machine: MakeMachine) -> None:
    runs = runs_on(machine(2, usable_cores=16))
    assert column(runs, "threads_per_rank") == {"ddp x2": 8, "dp x2": 16, "single x1": 16}


def test_a_rank_has_at_least_one_thread(machine: MakeMachine) -> None:
    runs = runs_on(machine(8, usable_cores=4))
    assert column(runs, "threads_per_rank") == {"ddp x8": 1, "dp x8": 4, "single x1": 4}


def test_the_users_omp_num_threads_overrides_ours(machine: MakeMachine) -> None:
    runs = runs_on(machine(2, usable_cores=16, omp_num_threads=3))
    assert set(column(runs, "threads_per_rank").values()) == {3}


@pytest.mark.parametrize(
    ("cores", "workers"), [(64, 4), (32, 4), (31, 3), (16, 2), (15, 1), (4, 1)]
)
def test_loader_workers_follow_from_cores_and_the_largest_count(
    machine: MakeMachine, cores: int, workers: int
) -> None:
    runs = runs_on(machine(8, usable_cores=cores), gpus=(2, 8))
    assert set(column(runs, "workers_per_device").values()) == {workers}


def test_dp_and_ddp_have_equal_totals_of_loader_workers(machine: MakeMachine) -> None:
    runs = runs_on(machine(4), gpus=(2, 4), workers_per_gpu=3)
    assert column(runs, "workers_per_rank") == {
        "ddp x2": 3, "ddp x4": 3, "dp x2": 6, "dp x4": 12, "single x1": 3,
    }  # fmt: skip


def test_single_has_the_total_of_loader_workers_in_strong_scaling(machine: MakeMachine) -> None:
    runs = runs_on(machine(4), gpus=(2, 4), workers_per_gpu=3, global_batch=64)
    assert runs["single x1"].workers_per_rank == 12
    assert runs["dp x2"].workers_per_rank == 6


def test_no_loader_workers_can_be_requested(machine: MakeMachine) -> None:
    runs = runs_on(machine(2), workers_per_gpu=0)
    assert set(column(runs, "workers_per_rank").values()) == {0}


@pytest.mark.parametrize(
    ("capability", "precision"),
    [((7, 0), "fp32"), ((7, 5), "fp32"), ((8, 0), "tf32"), ((9, 0), "tf32")],
)
def test_the_default_precision_follows_the_capability(
    machine: MakeMachine, capability: tuple[int, int], precision: str
) -> None:
    runs = runs_on(machine(2, capability))
    assert set(column(runs, "precision").values()) == {precision}


def test_the_default_precision_on_a_cpu_is_fp32(machine: MakeMachine) -> None:
    assert runs_on(machine(2), device="cpu")["single x1"].precision == "fp32"


def test_one_old_gpu_among_new_ones_decides_the_precision(machine: MakeMachine) -> None:
    mixed = (machine(1).gpus[0], gpu("GPU Y 8 GB", (7, 0)))
    assert runs_on(machine(gpus=mixed))["ddp x2"].precision == "fp32"


@pytest.mark.parametrize(
    ("options", "image_size"),
    [
        ({}, 224),
        ({"model": "tiny-cnn"}, 32),
        ({"model": "mlp"}, 32),
        ({"model": "resnet18", "image_size": 96}, 96),
        ({"model": "tiny-cnn", "image_size": 64}, 64),
    ],
    ids=str,
)
def test_the_image_size_is_the_models_own_unless_given(
    machine: MakeMachine, options: dict[str, Any], image_size: int
) -> None:
    assert runs_on(machine(1), **options)["single x1"].image_size == image_size


def test_the_standard_values(machine: MakeMachine) -> None:
    run = runs_on(machine(2))["single x1"]
    assert (run.model, run.warmup_steps, run.steps, run.seed) == ("resnet50", 20, 100, 0)
    assert run.data == "synthetic"
    assert run.timeout_s == 1800.0
    assert len(make_plan(Request(), machine(2)).runs) == 18  # 3 configurations, 6 rounds


def test_the_smoke_values(machine: MakeMachine) -> None:
    plan = make_plan(Request(smoke=True), machine(8))
    runs = configurations(plan)
    assert sorted(runs) == ["ddp x2", "dp x2", "single x1"]
    assert len(plan.runs) == 3
    run = runs["single x1"]
    assert (run.device_type, run.model, run.image_size) == ("cpu", "tiny-cnn", 32)
    assert (run.batch_per_device, run.warmup_steps, run.steps) == (8, 2, 5)
    assert plan.notices == ()


def test_options_override_smoke(machine: MakeMachine) -> None:
    options: dict[str, Any] = {"gpus": (3,), "model": "mlp", "batch_per_gpu": 6, "image_size": 48}
    steps: dict[str, Any] = {"warmup_steps": 0, "steps": 9, "rounds": 2, "seed": 5}
    plan = make_plan(Request(smoke=True, device="cuda", **options, **steps), machine(4))
    runs = configurations(plan)
    assert sorted(runs) == ["ddp x3", "dp x3", "single x1"]
    assert len(plan.runs) == 6
    run = runs["single x1"]
    assert (run.device_type, run.model, run.image_size) == ("cuda", "mlp", 48)
    assert (run.batch_per_device, run.warmup_steps, run.steps, run.seed) == (6, 0, 9, 5)


def test_auto_without_a_gpu_says_why_and_takes_the_smoke_values(machine: MakeMachine) -> None:
    plan = make_plan(Request(steps=7), machine(0))
    assert plan.notices == (
        "no usable GPU (Found no NVIDIA driver on your system): running on the CPU, with the "
        "--smoke values for every option not given",
    )
    run = configurations(plan)["ddp x2"]
    assert (run.device_type, run.model, run.batch_per_device) == ("cpu", "tiny-cnn", 8)
    assert (run.warmup_steps, run.steps) == (2, 7)


def test_the_fallback_shows_the_variable_that_hides_the_gpus(machine: MakeMachine) -> None:
    plan = make_plan(Request(device="auto"), machine(0, cuda_visible_devices="7"))
    assert "(Found no NVIDIA driver on your system; CUDA_VISIBLE_DEVICES=7)" in plan.notices[0]


@pytest.mark.parametrize("options", [{"device": "cpu"}, {"smoke": True}], ids=str)
def test_a_requested_cpu_is_no_fallback(machine: MakeMachine, options: dict[str, Any]) -> None:
    assert make_plan(Request(**options), machine(0)).notices == ()


def test_device_cpu_keeps_the_standard_values(machine: MakeMachine) -> None:
    run = runs_on(machine(0), device="cpu")["single x1"]
    assert (run.model, run.batch_per_device, run.steps) == ("resnet50", 64, 100)


def gpu(name: str, capability: tuple[int, int] = (8, 0)) -> Gpu:
    return Gpu(name=name, uuid=name, memory_bytes=2**33, capability=capability)


def test_gpus_of_different_models_are_named_once(machine: MakeMachine) -> None:
    """C63."""
    mixed = machine(gpus=(gpu("GPU X 24 GB"), gpu("GPU Y 8 GB")))
    assert make_plan(Request(), mixed).notices == (
        "the GPUs are of different models (GPU X 24 GB, GPU Y 8 GB): every step takes as long as "
        "on the slowest of them",
    )


def test_a_gpu_of_another_model_that_takes_no_part_has_no_notice(machine: MakeMachine) -> None:
    mixed = machine(gpus=(gpu("GPU X 24 GB"), gpu("GPU Y 8 GB")))
    assert make_plan(Request(modes=("single",)), mixed).notices == ()


@pytest.mark.parametrize(("capability", "has_notice"), [((8, 0), False), ((7, 5), True)])
def test_emulated_bf16_has_a_notice(
    machine: MakeMachine, capability: tuple[int, int], has_notice: bool
) -> None:
    plan = make_plan(Request(precision="amp-bf16"), machine(2, capability))
    assert any("bf16 is emulated" in notice for notice in plan.notices) is has_notice
    assert not make_plan(Request(precision="fp32"), machine(2, capability)).notices


def test_an_old_gpu_that_takes_no_part_needs_no_bf16(machine: MakeMachine) -> None:
    both = machine(gpus=(gpu("GPU X"), gpu("GPU X", (7, 5))))
    request = Request(modes=("single",), precision="amp-bf16")
    assert make_plan(request, both).notices == ()


# The order of the runs.


@pytest.mark.parametrize("rounds", [1, 3, 5, 8])
def test_every_round_has_every_configuration_once(machine: MakeMachine, rounds: int) -> None:
    plan = make_plan(Request(gpus=(2, 4), rounds=rounds), machine(4))
    assert [run.position for run in plan.runs] == list(range(1, 5 * rounds + 1))
    assert [run.round for run in plan.runs] == [r for r in range(1, rounds + 1) for _ in range(5)]
    expected = {("single", 1), ("dp", 2), ("dp", 4), ("ddp", 2), ("ddp", 4)}
    for number in range(1, rounds + 1):
        assert {(run.mode, run.num_devices) for run in plan.runs if run.round == number} == expected


def order_of(plan: Plan) -> list[tuple[str, int]]:
    return [(run.mode, run.num_devices) for run in plan.runs]


def test_a_seed_fixes_the_order(machine: MakeMachine) -> None:
    request = Request(seed=3, rounds=10)
    assert order_of(make_plan(request, machine(2))) == order_of(make_plan(request, machine(2)))


def test_seed_0_fixes_the_order_too(machine: MakeMachine) -> None:
    orders = {tuple(order_of(make_plan(Request(seed=0, rounds=10), machine(2)))) for _ in range(5)}
    assert len(orders) == 1


def test_without_a_seed_the_order_is_drawn_each_time(machine: MakeMachine) -> None:
    request = Request(rounds=10, gpus=(2, 4))
    orders = {tuple(order_of(make_plan(request, machine(4)))) for _ in range(5)}
    assert len(orders) > 1


def test_the_seed_of_the_order_is_the_one_that_was_given(machine: MakeMachine) -> None:
    assert make_plan(Request(seed=7), machine(2)).order_seed == 7
    assert make_plan(Request(seed=0), machine(2)).order_seed == 0


def test_without_a_seed_one_is_drawn_for_the_order_alone(machine: MakeMachine) -> None:
    plans = [make_plan(Request(), machine(2)) for _ in range(5)]
    assert len({plan.order_seed for plan in plans}) == 5
    assert {run.seed for plan in plans for run in plan.runs} == {0}


@pytest.mark.parametrize("seed", [None, 3])
def test_added_rounds_continue_the_order_of_the_session(
    machine: MakeMachine, seed: int | None
) -> None:
    """The plan was interrupted within a block of three rounds, and goes on in its middle."""
    plan = make_plan(Request(rounds=4, seed=seed), machine(2))
    longer = plan.with_rounds(9)
    assert longer.runs[:12] == plan.runs
    assert (plan.rounds, longer.rounds, longer.num_configurations) == (4, 9, 3)
    assert [run.position for run in longer.runs] == list(range(1, 28))
    assert [run.round for run in longer.runs] == [r for r in range(1, 10) for _ in range(3)]
    assert longer.order_seed == plan.order_seed
    assert plan.with_rounds(6).with_rounds(9) == longer
    names = [("single", 1), ("dp", 2), ("ddp", 2)]
    at_once = draw_order(3, 9, random.Random(plan.order_seed))
    assert order_of(longer) == [names[index] for index in at_once]


def test_a_plan_does_not_lose_rounds(machine: MakeMachine) -> None:
    plan = make_plan(Request(rounds=5), machine(2))
    assert plan.with_rounds(5) == plan.with_rounds(2) == plan


def test_rounds_until_decided_begin_with_the_usual_ones_and_never_exceed_the_most(
    machine: MakeMachine,
) -> None:
    def rounds(**options: Any) -> int:
        return make_plan(Request(until="decided", **options), machine(2)).rounds

    assert rounds() == 6
    assert rounds(rounds=8) == 8
    assert rounds(max_rounds=3) == 3
    assert rounds(smoke=True) == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rounds": 40_000}, "--rounds 40000"),
        ({"until": "decided", "max_rounds": 40_000}, "--max-rounds 40000"),
    ],
    ids=str,
)
def test_a_plan_has_at_most_a_hundred_thousand_runs(
    machine: MakeMachine, options: dict[str, Any], named: str
) -> None:
    error = refusal(machine(2), **options)
    assert error.message == f"{named} makes more than 100000 runs"


def test_a_planned_run_is_frozen_and_survives_pickling(machine: MakeMachine) -> None:
    run = make_plan(Request(), machine(2)).runs[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.steps = 5  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(run)) == run


def test_options_of_ddp_are_those_of_ddp_runs_only(machine: Callable[..., Machine]) -> None:
    ddp = DdpOptions(bucket_cap_mb=50.0, static_graph=True)
    request = Request(gpus=(2,), ddp=ddp, backend="gloo", cudnn_benchmark=True)
    plan = make_plan(request, machine(num_gpus=2))
    options = {run.mode: run.options for run in plan.runs}
    assert options["single"] == "cudnn_benchmark=true"
    assert options["ddp"] == (
        "backend=gloo;bucket_cap_mb=50;cudnn_benchmark=true;static_graph=true"
    )
    ddp_of = {run.mode: run.ddp for run in plan.runs}
    assert ddp_of == {"single": DdpOptions(), "ddp": ddp}
    assert all(run.cudnn_benchmark for run in plan.runs)
    assert {run.backend for run in plan.runs if run.mode == "ddp"} == {"gloo"}


def test_a_backend_that_is_the_default_is_no_option(machine: Callable[..., Machine]) -> None:
    plan = make_plan(Request(gpus=(2,), backend="nccl"), machine(num_gpus=2))
    assert {run.options for run in plan.runs} == {""}


def test_the_default_bucket_size_is_not_passed_on(machine: Callable[..., Machine]) -> None:
    """bucket_cap_mb=25 would be another experiment: torch's default has a first bucket of 1 MiB."""
    plan = make_plan(Request(gpus=(2,), modes=("ddp",)), machine(num_gpus=2))
    assert [run.ddp.changed for run in plan.runs] == [{}] * len(plan.runs)


def test_nccl_is_refused_if_ranks_share_a_gpu(machine: MakeMachine) -> None:
    error = refusal(machine(1), backend="nccl", oversubscribe=True, gpus=(2,))
    assert error.message.startswith("--backend nccl does not allow several ranks on one GPU")
    enough = Request(backend="nccl", oversubscribe=True, gpus=(2,))
    assert {run.backend for run in make_plan(enough, machine(2)).runs} == {"", "nccl"}


def test_nccl_is_refused_if_the_run_falls_back_to_the_cpu(
    machine: Callable[..., Machine],
) -> None:
    error = refusal(machine(), backend="nccl")
    assert error.message.startswith("--backend nccl needs GPUs and 0 are usable: Found no NVIDIA")


@pytest.mark.parametrize(("workers", "warns"), [(8, True), (1, False)])
def test_more_loader_workers_than_cores_have_one_notice(
    machine: Callable[..., Machine], workers: int, warns: bool
) -> None:
    """C44: one warning for the plan, and not one from every rank."""
    request = Request(device="cpu", data="photos", gpus=(2,), workers_per_gpu=workers)
    notices = make_plan(request, machine(usable_cores=2)).notices
    found = [notice for notice in notices if "8 loader workers x 2 devices = 16" in notice]
    assert len(found) == warns
    assert all("2 cores" in notice for notice in found)


def test_the_default_number_of_loader_workers_has_no_notice(
    machine: Callable[..., Machine],
) -> None:
    """It is ours, and at least one for each device."""
    request = Request(device="cpu", data="photos", gpus=(8,))
    plan = make_plan(request, machine(usable_cores=2))
    assert plan.runs[0].workers_per_device == 1
    assert not [notice for notice in plan.notices if "loader worker" in notice]


def test_synthetic_data_has_no_loader_and_no_notice(machine: Callable[..., Machine]) -> None:
    request = Request(device="cpu", gpus=(2,), workers_per_gpu=8)
    assert make_plan(request, machine(usable_cores=2)).notices == ()


def test_dp_is_left_out_with_compile_unless_named(machine: MakeMachine) -> None:
    """C30."""
    plan = make_plan(Request(compiled=True, rounds=1), machine(2))
    assert sorted(run.mode for run in plan.runs) == ["ddp", "single"]
    assert all(run.compiled for run in plan.runs)
    assert [notice for notice in plan.notices if "dp is left out with --compile" in notice]


def test_every_run_knows_the_number_of_classes(machine: MakeMachine) -> None:
    assert {run.num_classes for run in make_plan(Request(), machine(2)).runs} == {1000}
    plan = make_plan(Request(data="photos"), machine(2), {"photos": 37, "others": 5})
    assert {run.num_classes for run in plan.runs} == {37}


def test_two_mig_slices_are_refused_since_a_process_sees_one(machine: MakeMachine) -> None:
    """C56."""
    found = machine(1, cuda_visible_devices="MIG-377e0049,MIG-cb93c6d0")
    with pytest.raises(RequestRefused, match="MIG-377e0049,MIG-cb93c6d0") as caught:
        make_plan(Request(gpus=(2,)), found)
    assert "sees only one MIG slice" in caught.value.hint


def test_the_notice_counts_all_loader_workers_of_single_with_a_global_batch(
    machine: MakeMachine,
) -> None:
    """It has those of all four devices."""
    request = Request(
        gpus=(1, 4), device="cpu", global_batch=8, data="photos", workers_per_gpu=1,
        modes=("single",),
    )  # fmt: skip
    notices = make_plan(request, machine(0, usable_cores=2)).notices
    assert [notice for notice in notices if "1 loader worker x 4 devices = 4 share 2" in notice]


def test_sessions_of_one_mode_each_have_the_same_warm_up(machine: MakeMachine) -> None:
    """`run --mode dp` and `run --mode ddp` are compared: its length must not keep them apart."""
    warmups = {
        run.warmup_steps
        for mode in ("dp", "ddp")
        for run in make_plan(
            Request(modes=(mode,), data="photos"), machine(8, usable_cores=64)
        ).runs
    }
    assert warmups == {8 * 4 * 2}


def test_dp_is_left_out_with_cudnn_benchmark_on_gpus(machine: MakeMachine) -> None:
    """Its threads are new in every step, and cuDNN's choices are the thread's."""
    plan = make_plan(Request(cudnn_benchmark=True, rounds=1), machine(2))
    assert sorted(run.mode for run in plan.runs) == ["ddp", "single"]
    assert [notice for notice in plan.notices if "dp is left out with --cudnn-benchmark" in notice]
    on_cpu = Request(cudnn_benchmark=True, device="cpu", modes=("dp",), rounds=1)
    assert [run.mode for run in make_plan(on_cpu, machine(2)).runs] == ["dp"]


BUILD = ("sm_75", "sm_80", "sm_90", "compute_90")


@pytest.mark.parametrize(
    ("capability", "architectures", "runs"),
    [
        ((7, 5), BUILD, True),
        ((8, 6), BUILD, True),  # sm_80 runs on every 8.x
        ((6, 1), BUILD, False),
        ((7, 0), BUILD, False),  # sm_75 is newer
        ((10, 0), BUILD, True),  # the driver compiles the PTX of compute_90
        ((10, 0), BUILD[:-1], False),  # machine code alone does not go beyond its major version
        ((9, 0), ("sm_90a",), True),
        ((9, 1), ("sm_90a",), False),
        ((10, 3), ("sm_100f",), True),
        ((12, 0), ("sm_100f", "compute_100f", "compute_90a"), False),
        ((12, 0), ("sm_120",), True),
        ((6, 1), (), True),  # unknown
        ((6, 1), ("gfx90a",), True),  # not CUDA's
    ],
)
def test_gpus_that_torch_has_no_code_for_are_refused_with_the_list(
    machine: MakeMachine, capability: tuple[int, int], architectures: tuple[str, ...], runs: bool
) -> None:
    found = machine(2, capability=capability, cuda_architectures=architectures)
    request = Request(precision="fp32")
    if runs:
        assert make_plan(request, found).runs
        return
    with pytest.raises(RequestRefused) as caught:
        make_plan(request, found)
    number = f"sm_{capability[0]}{capability[1]}"
    assert caught.value.message.startswith(
        f"this torch has no code for GPU 0 (NVIDIA X, {number}); it has code for "
    )
    assert caught.value.message.endswith(", ".join(architectures))
    assert make_plan(Request(device="cpu"), found).runs


def test_a_gpu_that_is_not_used_needs_no_code(machine: MakeMachine) -> None:
    found = machine(2, cuda_architectures=BUILD)
    old = dataclasses.replace(found.gpus[1], capability=(6, 1))
    found = dataclasses.replace(found, gpus=(found.gpus[0], old))
    assert make_plan(Request(gpus=(1,), precision="fp32"), found).runs
    with pytest.raises(RequestRefused, match="no code for GPU 1"):
        make_plan(Request(gpus=(2,), precision="fp32"), found)


@pytest.mark.parametrize("modes", [("ddp",), ("dp", "ddp"), ("single", "dp", "ddp")])
def test_rounds_that_are_drawn_as_they_come_are_those_of_a_longer_plan(
    machine: Callable[..., Machine], modes: tuple[Any, ...]
) -> None:
    request = Request(gpus=(2,), modes=modes, duration_s=60.0, seed=3)
    plan = make_plan(request, machine(2))
    assert plan.rounds == 1
    longer = plan.with_rounds(7)
    later = itertools.islice(plan.rounds_after(1), 6)
    assert [run for round_ in later for run in round_] == list(longer.runs[len(modes) :])
    assert next(longer.rounds_after(6)) == longer.runs[-len(modes) :]
