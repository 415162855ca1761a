"""Torch's own DataParallel in runners/dp, on pretended devices: see `accelerator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mgpubench.launch.cause import Exit, find_cause
from mgpubench.launch.worker import Failure
from tests.simulated.conftest import CaseFailed

Simulation = Callable[..., dict[str, Any]]

OWN = "tests.simulated.models"
MODELS = [
    "tiny-cnn",
    "mlp",
    "resnet18",
    f"{OWN}:googlenet",
    f"{OWN}:mobilenet_v3_small",
    f"{OWN}:vit_b_16",
    f"{OWN}:WithBuffers",
    f"{OWN}:Checkpointed",
    "tests.gradients:tied",
]

TOLERANCE = 1e-5
"""Relative, of fp32: sums are made in another order."""


def assert_equal(facts: dict[str, Any]) -> None:
    """Logits, gradients and buffers are those that they are compared with."""
    differences: dict[str, float] = facts["differences"]
    assert differences.keys() == {"logits", "gradients", "buffers"}
    assert {kind: far for kind, far in differences.items() if not far < TOLERANCE} == {}


def parts_of(facts: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Device, first image and number of images of each replica."""
    return [
        (replica["device"], replica["first"], replica["samples"]) for replica in facts["replicas"]
    ]


@pytest.mark.parametrize("model", MODELS)
def test_a_step_on_two_devices_equals_its_parts_on_one(simulation: Simulation, model: str) -> None:
    """BatchNorm sees the part of its replica, and its statistics are those of the first part."""
    facts = simulation("step", model=model, on=[0, 1], batch=4)
    assert_equal(facts)
    assert parts_of(facts) == [("sim:0", 0, 2), ("sim:1", 2, 2)]
    assert [replica["weights_on"] for replica in facts["replicas"]] == [["sim:0"], ["sim:1"]]
    # Otherwise the comparison would hold for any fault that loses them all.
    assert facts["smallest_gradient"] > 0


@pytest.mark.parametrize("model", ["mlp", f"{OWN}:Checkpointed", "tests.gradients:tied"])
def test_without_batchnorm_two_devices_equal_the_single_one(
    simulation: Simulation, model: str
) -> None:
    assert_equal(simulation("step_of_one", model=model, batch=6))


@pytest.mark.parametrize(
    ("on", "batch", "parts"),
    [
        ([0, 0], 8, [("sim:0", 0, 4), ("sim:0", 4, 4)]),
        ([0, 1, 0], 9, [("sim:0", 0, 3), ("sim:1", 3, 3), ("sim:0", 6, 3)]),
        ([0, 1, 2, 3], 8, [(f"sim:{n}", 2 * n, 2) for n in range(4)]),
        ([2, 1], 4, [("sim:2", 0, 2), ("sim:1", 2, 2)]),
        ([0, 1], 5, [("sim:0", 0, 3), ("sim:1", 3, 2)]),
        ([0, 1, 2, 3], 6, [("sim:0", 0, 2), ("sim:1", 2, 2), ("sim:2", 4, 2)]),
    ],
    ids=["one twice", "one again", "four", "another first", "uneven", "too few for all"],
)
@pytest.mark.parametrize("model", ["tiny-cnn", f"{OWN}:WithBuffers"])
def test_any_devices_and_any_batch(
    simulation: Simulation, model: str, on: list[int], batch: int, parts: list[Any]
) -> None:
    facts = simulation("step", model=model, on=on, batch=batch)
    assert_equal(facts)
    assert parts_of(facts) == parts


@pytest.mark.parametrize("model", ["tiny-cnn", f"{OWN}:Checkpointed"])
@pytest.mark.parametrize("precision", ["fp32", "amp-bf16", "bf16"])
def test_every_replica_computes_in_the_precision(
    simulation: Simulation, model: str, precision: str
) -> None:
    """METHOD.md 1.1: the threads of the replicas do not inherit the type of autocast."""
    facts = simulation("step", model=model, on=[0, 1], batch=4, precision=precision)
    expected = "torch.float32" if precision == "fp32" else "torch.bfloat16"
    assert [replica["types"] for replica in facts["replicas"]] == [[expected], [expected]]
    # A thread of autograd for each device: sums in bf16 are made in another order.
    limit = TOLERANCE if precision == "fp32" else 0.02
    assert all(far < limit for far in facts["differences"].values())


def test_only_the_first_replica_keeps_channels_last(simulation: Simulation) -> None:
    """Torch's broadcast flattens the weights. The finding about such rows rests on this."""
    facts = simulation("step", model="tiny-cnn", on=[0, 1, 2], batch=6, channels_last=True)
    assert_equal(facts)
    assert [replica["channels_last"] for replica in facts["replicas"]] == [True, False, False]


def test_a_tensor_that_is_no_buffer_is_caught_and_named(simulation: Simulation) -> None:
    with pytest.raises(CaseFailed) as caught:
        simulation("step", model=f"{OWN}:WithPlainTensor", on=[0, 1], batch=4)
    message = str(caught.value).removeprefix("RuntimeError: ")
    failure = Failure(0.0, "RuntimeError", message, "")
    error = find_cause([Exit(0, 100, 1, failure, "")], "dp x2")
    assert error.message == (
        "dp x2: rank 0: RuntimeError: Expected all tensors to be on the same device, and "
        "aten.mul.Tensor got sim:0, sim:1"
    )
    assert "register_buffer" in error.hint


@pytest.mark.parametrize("model", ["tiny-cnn", "resnet18", f"{OWN}:WithBuffers"])
@pytest.mark.parametrize("num_devices", [2, 3])
def test_our_cpu_replicas_do_the_same(simulation: Simulation, model: str, num_devices: int) -> None:
    facts = simulation(
        "against_cpu_replicas", model=model, num_devices=num_devices, batch=2 * num_devices
    )
    assert_equal(facts)


def test_a_whole_run_ends_with_the_loss_of_our_cpu_replicas(simulation: Simulation) -> None:
    facts = simulation("whole_run", model="tiny-cnn", num_devices=2)
    assert facts["losses"][0] == pytest.approx(facts["losses"][1], rel=TOLERANCE)
    assert facts["samples"] == [8] * 5
    assert facts["num_step_times"] == 5


@pytest.mark.parametrize(
    ("fault", "model", "what"),
    [
        ("buffers are blank", f"{OWN}:WithBuffers", "logits"),
        ("gradients are not summed", "tiny-cnn", "gradients"),
        ("gradients are not summed", "tests.gradients:tied", "gradients"),
        ("outputs are swapped", "tiny-cnn", "logits"),
    ],
)
def test_a_planted_fault_is_found(
    simulation: Simulation, fault: str, model: str, what: str
) -> None:
    facts = simulation("step", model=model, on=[0, 1], batch=4, fault=fault)
    with pytest.raises(AssertionError, match=what):
        assert_equal(facts)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("buffers stay behind", r"on the same device, and \S+ got sim:0, sim:1"),
        ("autocast is outside", "matrix products run in torch.float16 instead of torch.bfloat16"),
    ],
)
def test_a_planted_fault_is_refused(simulation: Simulation, fault: str, words: str) -> None:
    with pytest.raises(CaseFailed, match=words):
        simulation(
            "step",
            model=f"{OWN}:WithBuffers",
            on=[0, 1],
            batch=4,
            fault=fault,
            precision="amp-bf16" if "autocast" in fault else "fp32",
        )
