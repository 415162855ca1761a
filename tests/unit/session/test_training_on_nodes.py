"""A training on several machines: its devices, its mode, and what a machine takes from node 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mgpubench.config.machine_facts import Machine
from mgpubench.config.request import Request
from mgpubench.config.train_request import TrainOptions, TrainRequest
from mgpubench.errors import RequestRefused
from mgpubench.launch.nodes.messages import decode, encode
from mgpubench.session.hello import (
    Asked,
    refuse_code_by_name,
    refuse_differences,
    unplanned_devices,
)
from mgpubench.session.train_node import AskedHere
from mgpubench.session.train_prepare import Place, TrainAnnouncement, plan_training

MakeMachine = Callable[..., Machine]


def request(**work: Any) -> TrainRequest:
    return TrainRequest(work=Request(data="photos", **work), options=TrainOptions(eval_data="val"))


def place(*given: tuple[Machine, tuple[int, ...] | None], counts: tuple[int, ...] = ()) -> Place:
    """Node 0 after others have joined, each with its own --gpus."""
    nodes = SimpleNamespace(devices=tuple(unplanned_devices(*each) for each in given))
    nothing: Any = None
    return Place(nothing, nodes, nothing, counts)  # type: ignore[arg-type]


def test_each_machine_has_its_own_number_of_devices(machine: MakeMachine) -> None:
    others = [(machine(4), None), (machine(4), (2,))]
    found = place(*others).devices(request(gpus=(3,)), machine(3))
    assert [node.counts for node in found] == [(4,), (2,)]


def test_a_training_that_goes_on_takes_as_many_as_before(machine: MakeMachine) -> None:
    """A machine that was not there before takes all of its own."""
    others = [(machine(4), None), (machine(4), (1,)), (machine(4), None)]
    found = place(*others, counts=(3, 2, 2)).devices(request(gpus=(3,)), machine(3))
    assert [node.counts for node in found] == [(2,), (1,), (4,)]


def test_a_machine_that_lacks_its_devices_is_named(machine: MakeMachine) -> None:
    with pytest.raises(RequestRefused, match=r"^node 2: --gpus 8 needs 8 GPUs and 4 are usable"):
        place((machine(4), None), (machine(4), (8,))).devices(request(), machine(4))
    with pytest.raises(RequestRefused, match=r"^node 0 would run on cuda, and node 1 on cpu$"):
        place((machine(0), None)).devices(request(), machine(4))


def test_the_default_on_several_machines_is_ddp(machine: MakeMachine) -> None:
    others = place((machine(1), None)).devices(request(), machine(1))
    run = plan_training(request(), machine(1), 2, others).runs[0]
    assert (run.mode, run.num_devices, run.num_nodes, run.ranks_of_node(1)) == (
        *("ddp", 2, 2),
        range(1, 2),
    )
    assert plan_training(request(), machine(1), 2).runs[0].mode == "single"


def test_a_mode_of_one_machine_is_refused(machine: MakeMachine) -> None:
    others = place((machine(2), None)).devices(request(), machine(2))
    with pytest.raises(RequestRefused, match=r"^--mode dp uses one machine, and the training"):
        plan_training(request(modes=("dp",)), machine(2), 2, others)


def test_an_announcement_comes_back_as_it_was(machine: MakeMachine) -> None:
    plan = plan_training(request(), machine(2), 2)
    announcement = TrainAnnouncement(request=request(), plan=plan, has_checkpoint=True)
    assert decode(encode(announcement)) == announcement


def test_images_are_where_this_machine_has_them() -> None:
    here = AskedHere(request=None, asked=Asked(), folders={"data": "elsewhere"})
    found = here.request_here(request())
    assert (found.work.data, found.options.eval_data) == ("elsewhere", "val")
    here = replace(here, folders={"eval_data": "other"})
    found = here.request_here(request())
    assert (found.work.data, found.options.eval_data) == ("photos", "other")


def test_code_is_run_only_if_this_machine_names_it() -> None:
    refuse_code_by_name(1, ["resnet50", "nets:make"], ["nets:make"])
    with pytest.raises(
        RequestRefused, match=r"^node 0 has --model os:abort, .* on node 1 does not"
    ):
        refuse_code_by_name(1, ["os:abort"], [None])


def test_other_classes_and_images_are_named() -> None:
    own = {"classes": ["cat", "dog"], "evaluation": {"digest": "a"}}
    other = {"classes": ["cat", "cow"], "evaluation": {"digest": "b"}}
    expected = (
        r"classes\[1\] is 'dog' on node 0 and 'cow' on node 1; the names or sizes of the images of "
        "--eval-data on node 1 are not those on node 0"
    )
    with pytest.raises(RequestRefused, match=expected):
        refuse_differences(own, [other])
