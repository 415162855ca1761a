"""Optimizer, accumulation, precision and options of DDP: what is refused, and what is planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.request_checks import check_divisible
from mgpubench.config.run_config import DdpOptions, RunConfig
from mgpubench.errors import RequestRefused
from tests.conftest import make_cpu_config

MakeMachine = Callable[..., Machine]


def refusal(**values: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        Request(**values)
    assert caught.value.exit_code == 2
    return caught.value


def planned(machine: Machine, **values: Any) -> dict[str, RunConfig]:
    plan = make_plan(Request(**values), machine)
    return {run.label: run for run in plan.runs if run.round == 1}


def test_accumulation_and_a_static_graph_exclude_each_other() -> None:
    error = refusal(accumulate=2, ddp=DdpOptions(static_graph=True))
    assert "--accumulate and --static-graph exclude each other" in error.message
    assert error.hint
    Request(accumulate=1, ddp=DdpOptions(static_graph=True))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"zero": True}, "--zero"),
        ({"comm_hook": "fp16"}, "--comm-hook"),
        ({"sync_batchnorm": True}, "--sync-batchnorm"),
        ({"zero": True, "comm_hook": "powersgd"}, "--comm-hook, --zero"),
    ],
)
@pytest.mark.parametrize("modes", [("dp",), ("single",), ("single", "dp"), ("fsdp",)])
def test_an_option_of_ddp_is_refused_where_no_run_of_ddp_is_asked_for(
    options: dict[str, Any], named: str, modes: Any
) -> None:
    error = refusal(modes=modes, ddp=DdpOptions(**options))
    assert error.message == (f"{named}: only for ddp, which --mode {','.join(modes)} does not run")


@pytest.mark.parametrize("where", [{"device": "cpu"}, {"smoke": True}])
def test_sync_batchnorm_is_refused_on_a_cpu(where: dict[str, Any]) -> None:
    error = refusal(ddp=DdpOptions(sync_batchnorm=True), **where)
    assert "--sync-batchnorm needs GPUs" in error.message
    assert error.hint


def test_sync_batchnorm_is_also_refused_if_there_turns_out_to_be_no_gpu(
    machine: MakeMachine,
) -> None:
    request = Request(ddp=DdpOptions(sync_batchnorm=True))
    with pytest.raises(RequestRefused, match="--sync-batchnorm needs GPUs"):
        make_plan(request, machine())
    assert make_plan(request, machine(2)).runs


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"accumulate": 0}, "--accumulate is 0, and must be at least 1"),
        ({"log_every": -1}, "--log-every is -1, and must be at least 0"),
        ({"accumulate": 2**31}, "--accumulate is 2147483648, and must be at most"),
    ],
)
def test_impossible_numbers_are_refused(values: dict[str, Any], words: str) -> None:
    assert words in refusal(**values).message


def test_the_global_batch_must_be_divisible_by_devices_and_micro_batches() -> None:
    check_divisible(24, 2, 3)
    error = refusal(global_batch=20, gpus=(2,), accumulate=3)
    assert error.message == (
        "--global-batch 20 cannot be shared equally by 2 devices x 3 micro-batches (--accumulate)"
    )
    assert "try 18 or 24" in error.hint


def test_the_batch_of_a_device_counts_all_its_micro_batches(machine: MakeMachine) -> None:
    runs = planned(machine(2), batch_per_gpu=16, accumulate=4)
    for run in runs.values():
        assert run.micro_batch_per_device == 16
        assert run.batch_per_device == 64
        assert run.global_batch == 64 * run.num_devices


def test_a_global_batch_is_cut_into_micro_batches(machine: MakeMachine) -> None:
    runs = planned(machine(2), global_batch=96, accumulate=3)
    assert {name: run.micro_batch_per_device for name, run in runs.items()} == {
        "single x1": 32,
        "dp x2": 16,
        "ddp x2": 16,
    }
    assert {run.global_batch for run in runs.values()} == {96}


def test_the_options_of_ddp_are_in_the_column_of_ddp_alone(machine: MakeMachine) -> None:
    ddp = DdpOptions(zero=True, comm_hook="fp16", sync_batchnorm=True)
    runs = planned(machine(2), ddp=ddp, log_every=10)
    expected = "comm_hook=fp16;log_every=10;sync_batchnorm=true;zero=true"
    assert runs["ddp x2"].options == expected
    assert runs["dp x2"].options == runs["single x1"].options == "log_every=10"


def test_torch_is_given_only_what_it_takes() -> None:
    ddp = DdpOptions(bucket_cap_mb=4.0, zero=True, comm_hook="fp16", sync_batchnorm=True)
    assert ddp.arguments == {"bucket_cap_mb": 4.0}


@pytest.mark.parametrize("precision", ["fp16", "amp-fp16"])
def test_fp16_on_a_cpu_comes_with_a_warning(machine: MakeMachine, precision: Any) -> None:
    def notices(**values: Any) -> list[str]:
        plan = make_plan(Request(precision=precision, **values), machine(2))
        return [notice for notice in plan.notices if "fp16 is far slower there" in notice]

    assert len(notices(device="cpu")) == 1
    assert notices() == []


@pytest.mark.parametrize(
    ("workers", "accumulate", "steps"), [(3, 1, 6), (3, 2, 3), (3, 4, 2), (0, 4, 0)]
)
def test_a_queue_of_micro_batches_lasts_for_fewer_steps(
    workers: int, accumulate: int, steps: int
) -> None:
    config = make_cpu_config(data="photos", workers_per_rank=workers, accumulate=accumulate)
    assert config.queue_length == steps
