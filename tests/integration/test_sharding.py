"""fsdp: its units, and weights that are shared out, made whole, and shared out again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

from mgpubench.errors import RequestRefused
from mgpubench.launch.supervisor import Supervisor
from mgpubench.session.workers import launch_run
from mgpubench.training import sharding
from mgpubench.training.models.builtin import mlp, tiny_cnn
from mgpubench.training.sharding import check_sharding, units_of
from mgpubench.training.trainable import TrainableModel
from tests.conftest import make_cpu_config
from tests.sharded import uneven


def units(model: nn.Module) -> list[str]:
    """The names of the units of a model."""
    names = {module: name for name, module in model.named_modules()}
    return [names[unit] for unit in units_of(model)]


def torchvision_model(name: str) -> nn.Module:
    with torch.device("meta"):
        model: nn.Module = torchvision.models.get_model(name, weights=None)
    return model


# Units.


def test_the_units_of_a_resnet_are_its_larger_blocks() -> None:
    assert units(torchvision_model("resnet50")) == [
        *(f"layer2.{block}" for block in range(4)),
        *(f"layer3.{block}" for block in range(6)),
        *(f"layer4.{block}" for block in range(3)),
    ]


def test_the_units_of_a_vit_are_its_blocks_and_nothing_inside_them() -> None:
    """Attention uses the weights of its layers without calling the layers."""
    blocks = [f"encoder.layers.encoder_layer_{number}" for number in range(12)]
    assert units(torchvision_model("vit_b_16")) == [*blocks, "heads.head"]


def test_containers_are_passed_through_and_large_layers_are_units() -> None:
    assert units(TrainableModel(mlp(1000), "fp32")) == ["model.2", "model.4", "model.6"]
    assert units(torchvision_model("alexnet"))[-3:] == [
        "classifier.1", "classifier.4", "classifier.6",
    ]  # fmt: skip


def test_a_small_model_has_no_units() -> None:
    assert units(tiny_cnn(1000)) == []


def test_a_part_that_shares_a_weight_with_another_is_no_unit() -> None:
    layers = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(3)))
    assert units(layers) == ["0", "1", "2"]
    layers[2].weight = layers[0].weight
    assert units(layers) == ["1"]


# Round trips.

Launch = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def launch(supervisor: Supervisor) -> Launch:
    """Runs a function of tests.sharded on all ranks of a run."""

    def run(function: str, mode: str = "fsdp", num_devices: int = 2, **changes: Any) -> Any:
        config = make_cpu_config(
            mode=mode, effective_mode=mode, num_devices=num_devices, num_classes=10, **changes
        )
        return launch_run(supervisor, config, lambda steps: None, f"tests.sharded:{function}")

    return run


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize(
    ("model", "num_devices", "count"),
    [("mlp", 2, 2), ("tests.sharded:uneven", 3, 2), ("tiny-cnn", 3, 0), ("tiny-cnn", 1, 0)],
)
def test_whole_weights_are_the_same_bits_in_a_plain_model_and_back(
    launch: Launch, model: str, num_devices: int, count: int, optimizer: str
) -> None:
    """Also with fewer rows than ranks, and a weight that has two names."""
    for found in launch("round_trip", "fsdp", num_devices, model=model, optimizer=optimizer):
        assert found.pop("units") == count
        assert all(found.values()), found


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_weights_are_the_same_bits_too(launch: Launch, precision: str) -> None:
    for found in launch("round_trip", model="mlp", precision=precision):
        assert found.pop("units") == 2
        assert all(found.values()), found


def test_ranks_with_different_numbers_of_images_evaluate_and_go_on(launch: Launch) -> None:
    """And the steps after it are those of ddp."""
    fsdp, ddp = (
        launch("evaluate_between_steps", mode, 2, model="tests.sharded:uneven")
        for mode in ("fsdp", "ddp")
    )
    for found, expected in zip(fsdp, ddp, strict=True):
        assert found["samples"] == [15, 15]
        assert found["top1"] == expected["top1"]
        assert found["losses"] == pytest.approx(expected["losses"], rel=1e-5)
        assert found["is_training"]
        assert (found["is_apart"], expected["is_apart"]) == (True, False)


def test_blocks_that_share_a_weight_with_each_other_are_no_units() -> None:
    assert units(uneven()) == ["blocks.0", "blocks.1"]


# Refusals.


def test_a_torch_without_fully_shard_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_cpu_config(mode="fsdp", effective_mode="fsdp", num_devices=2)
    check_sharding(config)
    for module in ("torch.nn", "torch.no_such_module"):
        monkeypatch.setattr(sharding, "FSDP", module)
        with pytest.raises(RequestRefused, match=r"^--mode fsdp needs .*fully_shard, which torch"):
            check_sharding(config)


def test_a_weight_without_a_dimension_is_refused_by_name() -> None:
    with pytest.raises(RequestRefused, match=r"cannot share out weight of --model tests.trained"):
        check_sharding(make_cpu_config(mode="fsdp", model="tests.trained:dropping"))
