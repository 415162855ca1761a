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


def saved() -> SavedTraining:
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
    return SavedTraining(session, TrainRequest(work=work, options=TrainOptions()))


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
