"""From a request with variants to runs: what each variant sets, and what all of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import DdpOptions
from mgpubench.errors import RequestRefused

MakeMachine = Callable[..., Machine]


def variants(*options: dict[str, Any], **shared: Any) -> Request:
    """A request with variants v1, v2, ..., which differ in the given options."""
    parts = tuple(
        Request(**{**shared, **each}, variant=f"v{number}", variant_number=number)
        for number, each in enumerate(options, start=1)
    )
    return Request(**shared, variants=parts)


BUCKETS: tuple[dict[str, Any], ...] = ({}, {"ddp": DdpOptions(bucket_cap_mb=50.0)}, {"steps": 9})


def test_variants_are_configurations_of_every_round(machine: MakeMachine) -> None:
    plan = make_plan(variants(*BUCKETS, gpus=(2, 4), rounds=2), machine(4))
    modes = [("single", 1), ("dp", 2), ("dp", 4), ("ddp", 2), ("ddp", 4)]
    for number in (1, 2):
        made = [(r.variant, r.mode, r.num_devices) for r in plan.runs if r.round == number]
        assert sorted(made) == sorted((f"v{v}", *mode) for v in (1, 2, 3) for mode in modes)
    assert plan.num_configurations == 15
    assert len(plan.runs) == 30


def test_variants_are_interleaved(machine: MakeMachine) -> None:
    """Not all runs of one variant and then all of the other."""
    plan = make_plan(variants({}, {}, modes=("ddp",), gpus=(2,), rounds=6, seed=1), machine(2))
    names = [run.variant for run in plan.runs]
    assert [set(names[i : i + 2]) for i in range(0, 12, 2)] == [{"v1", "v2"}] * 6
    assert names[::2].count("v1") == 3


def test_a_variant_has_its_name_number_and_options(machine: MakeMachine) -> None:
    plan = make_plan(variants(*BUCKETS, modes=("ddp",), gpus=(2,), rounds=1), machine(2))
    runs = {run.variant: run for run in plan.runs}
    assert {name: run.variant_number for name, run in runs.items()} == {"v1": 1, "v2": 2, "v3": 3}
    assert {name: run.options for name, run in runs.items()} == {
        "v1": "", "v2": "bucket_cap_mb=50", "v3": "",
    }  # fmt: skip
    assert {name: run.steps for name, run in runs.items()} == {"v1": 100, "v2": 100, "v3": 9}
    assert [run.label for run in runs.values() if run.variant == "v2"] == ["ddp x2 (v2)"]


def test_the_environment_of_a_variant_is_in_its_options(machine: MakeMachine) -> None:
    env = (("MALLOC_ARENA_MAX", "1"), ("ATEN_CPU_CAPABILITY", "default"))
    plan = make_plan(
        variants({}, {"env": env, "cudnn_benchmark": True}, modes=("single",)), machine(2)
    )
    runs = {run.variant: run for run in plan.runs}
    assert runs["v2"].env == env
    assert runs["v2"].options == (
        "cudnn_benchmark=true;env:ATEN_CPU_CAPABILITY=default;env:MALLOC_ARENA_MAX=1"
    )
    assert (runs["v1"].env, runs["v1"].options) == ((), "")


def test_omp_num_threads_of_a_variant_sets_the_threads_of_its_ranks(machine: MakeMachine) -> None:
    request = variants({}, {"env": (("OMP_NUM_THREADS", "3"),)}, gpus=(2,))
    plan = make_plan(request, machine(2, usable_cores=16, omp_num_threads=5))
    threads = {(run.variant, run.threads_per_rank) for run in plan.runs}
    assert threads == {("v1", 5), ("v2", 3)}


def test_a_notice_that_several_variants_cause_appears_once(machine: MakeMachine) -> None:
    plan = make_plan(variants({}, {"steps": 7}), machine(0))
    assert len(plan.notices) == 1
    assert plan.notices[0].startswith("no usable GPU")
    plan = make_plan(variants({}, {}, {}), machine(1))
    assert len(plan.notices) == 1
    assert plan.notices[0].startswith("dp is left out on one device")


def test_a_variant_that_is_impossible_on_this_machine_is_refused(machine: MakeMachine) -> None:
    with pytest.raises(RequestRefused, match="--precision tf32 needs GPUs"):
        make_plan(variants({}, {"precision": "tf32"}), machine(2, (7, 0)))


def test_each_variant_has_the_classes_of_its_own_folder(machine: MakeMachine) -> None:
    request = variants({"data": "cats"}, {"data": "dogs"}, {})
    plan = make_plan(request, machine(2), {"cats": 3, "dogs": 7})
    assert {(run.variant, run.num_classes) for run in plan.runs} == {
        ("v1", 3), ("v2", 7), ("v3", 1000),
    }  # fmt: skip


def test_variants_share_a_warm_up_that_uses_up_every_loaders_queue(machine: MakeMachine) -> None:
    """DataParallel has 2 x 8 workers with 2 batches each."""
    request = variants({"workers_per_gpu": 1}, {"workers_per_gpu": 8}, data="photos", gpus=(2,))
    plan = make_plan(request, machine(2, usable_cores=64))
    assert {run.warmup_steps for run in plan.runs} == {32}
    assert [notice for notice in plan.notices if notice.startswith("32 warm-up steps instead of")]


def test_a_warm_up_that_a_variant_sets_is_not_changed(machine: MakeMachine) -> None:
    request = variants(
        {"warmup_steps": 3}, {"warmup_steps": 50}, {}, data="photos", gpus=(2,), workers_per_gpu=8
    )
    plan = make_plan(request, machine(2, usable_cores=64))
    steps = {(run.variant, run.warmup_steps) for run in plan.runs}
    assert steps == {("v1", 3), ("v2", 50), ("v3", 32)}


def test_emulated_bf16_of_any_variant_has_a_notice(machine: MakeMachine) -> None:
    request = variants({"precision": "fp32"}, {"precision": "amp-bf16"})
    assert "bf16 is emulated" in " ".join(make_plan(request, machine(2, (7, 5))).notices)
    assert make_plan(request, machine(2)).notices == ()
