"""Which options a training that goes on may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import DdpOptions
from mgpubench.config.train_request import TrainOptions, TrainRequest
from mgpubench.errors import RequestRefused
from mgpubench.machine.host import assumed_machine
from mgpubench.session.document import SavedSession
from mgpubench.session.train_resume import SavedTraining, resumed_request

OPTIONS_OF = {"compiled": "--compile", "zero": "--zero", "static_graph": "--static-graph"}

MACHINE: Machine = assumed_machine(2)


def saved(**options: Any) -> SavedTraining:
    """A training in ddp on two GPUs, with two options of ddp."""
    work = Request(
        modes=("ddp",),
        data="photos",
        rounds=1,
        global_batch=8,
        ddp=DdpOptions(zero=True, static_graph=True),
    )
    session = SavedSession(
        id="s",
        folder=Path("results/s"),
        document={},
        request=work,
        plan=make_plan(work, MACHINE, {"photos": 2}),
    )
    return SavedTraining(session, TrainRequest(work=work, options=TrainOptions(**options)))


def test_an_option_may_be_repeated_alone_and_the_others_stay() -> None:
    request = resumed_request(saved(), {"zero": True, "epochs": 40}, OPTIONS_OF)
    assert request.work.ddp == DdpOptions(zero=True, static_graph=True)
    assert (request.options.epochs, request.work.global_batch) == (40, 8)


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"compiled": True}, "--compile was off, and cannot be on now"),
        ({"zero": True, "static_graph": False}, "--static-graph was on, and cannot be off now"),
    ],
)
def test_another_value_is_refused_under_the_name_of_its_option(
    given: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(RequestRefused, match=f"^--resume results/s: {refusal}$"):
        resumed_request(saved(), given, OPTIONS_OF)


def test_a_path_may_be_written_in_another_way() -> None:
    same = {"data": "photos/", "eval_data": "./test"}
    resumed_request(saved(eval_data="test"), same, OPTIONS_OF)
    other = {"data": "--data was photos, and cannot be pictures now"}
    with pytest.raises(RequestRefused, match=other["data"]):
        resumed_request(saved(), {"data": "pictures"}, {"data": "--data"})
    with pytest.raises(RequestRefused, match=r"--eval-data was not given, and cannot be \. now"):
        resumed_request(saved(), {"eval_data": "."}, {"eval_data": "--eval-data"})


def test_what_the_plan_has_decided_may_be_repeated() -> None:
    decided = {"model": "resnet50", "image_size": 224, "seed": 0}
    resumed_request(saved(), decided, OPTIONS_OF)
    with pytest.raises(RequestRefused, match="--seed was 0, and cannot be 1 now"):
        resumed_request(saved(), {"seed": 1}, {"seed": "--seed"})


@pytest.mark.parametrize("value", ["", "b.pt"])
def test_weights_to_begin_with_are_refused_unless_they_are_its_own(value: str) -> None:
    with pytest.raises(RequestRefused, match="--pretrained and --resume exclude each other"):
        resumed_request(saved(), {"pretrained": value}, OPTIONS_OF)
    own = saved(pretrained="a.pt")
    assert resumed_request(own, {"pretrained": "a.pt"}, OPTIONS_OF).options == own.request.options


def test_the_numbers_of_devices_that_can_share_the_global_batch_are_named() -> None:
    with pytest.raises(RequestRefused) as caught:
        resumed_request(saved(), {"gpus": (3,)}, OPTIONS_OF)
    assert caught.value.message == (
        "--resume results/s: --global-batch 8 cannot be shared equally by 3 devices"
    )
    assert caught.value.hint == (
        "The global batch stays as it was. It can be shared by 1, 2, 4, 8 devices."
    )


def test_fewer_epochs_than_the_warm_up_are_refused() -> None:
    with pytest.raises(RequestRefused, match="--warmup-epochs 5 is more than --epochs 4"):
        resumed_request(saved(warmup_epochs=5.0), {"epochs": 4}, OPTIONS_OF)
