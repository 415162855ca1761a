"""All modes train the same problem: a fast gradient that is wrong would be worthless."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from mgpubench.config.run_config import DdpOptions, RunConfig
from mgpubench.errors import RunFailed
from mgpubench.launch.supervisor import Supervisor
from mgpubench.runners.cpu_replicas import wrap_on_cpu
from mgpubench.session.workers import launch_run
from tests import gradients
from tests.conftest import make_cpu_config

Make = Callable[..., RunConfig]
Steps = dict[str, list[dict[str, Any]]]


def one_step(supervisor: Supervisor, config: RunConfig) -> list[dict[str, Any]]:
    """What each rank of a run answers after one step."""
    ranks: list[Any] = launch_run(
        supervisor, config, lambda steps: None, "tests.gradients:one_step"
    )
    return ranks


@pytest.fixture(scope="module")
def steps(request: pytest.FixtureRequest) -> Steps:
    """One step on the same 16 images: one device, two replicas in threads, two processes."""
    supervisor: Supervisor = request.getfixturevalue("supervisor")
    configs = {
        "single": make_cpu_config(model="mlp", batch_per_device=16),
        "dp": make_cpu_config(model="mlp", mode="dp", num_devices=2, batch_per_device=8),
        "ddp": make_cpu_config(model="mlp", mode="ddp", num_devices=2, batch_per_device=8),
    }
    return {mode: one_step(supervisor, config) for mode, config in configs.items()}


@pytest.mark.parametrize("mode", ["dp", "ddp"])
def test_gradients_equal_those_of_one_device(steps: Steps, mode: str) -> None:
    expected = steps["single"][0]["gradients"]
    for rank in steps[mode]:
        assert rank["gradients"].keys() == expected.keys()
        for name, gradient in rank["gradients"].items():
            assert relative_difference(gradient, expected[name]) < 1e-5, name


@pytest.mark.parametrize("mode", ["dp", "ddp"])
def test_weights_after_the_step_equal_those_of_one_device(steps: Steps, mode: str) -> None:
    expected = steps["single"][0]["weights"]
    for rank in steps[mode]:
        for name, weights in rank["weights"].items():
            assert relative_difference(weights, expected[name]) < 1e-5, name


def test_the_gradients_are_not_zero(steps: Steps) -> None:
    """Otherwise the comparison above would hold for any bug that loses them all."""
    for mode in ("single", "dp", "ddp"):
        for name, gradient in steps[mode][0]["gradients"].items():
            assert max(map(abs, gradient)) > 1e-6, (mode, name)


def test_each_replica_sees_its_part_of_the_global_batch(steps: Steps) -> None:
    """C23: on a CPU torch's own DataParallel would call the module once, with everything."""
    assert steps["single"][0]["seen"] == [16]
    assert steps["dp"][0]["seen"] == [8, 8]
    assert [rank["seen"] for rank in steps["ddp"]] == [[8], [8]]


@pytest.mark.parametrize("name", ["tied", "recomputed", "recomputed_reentrantly", "recurrent"])
def test_the_replicas_of_an_own_model_have_the_gradients_of_one_device(
    supervisor: Supervisor, name: str
) -> None:
    """With tensors under two names, with checkpointing, and with lists and parametrizations."""

    def gradients_of(**changes: Any) -> dict[str, list[float]]:
        config = make_cpu_config(model=f"tests.gradients:{name}", **changes)
        (rank,) = one_step(supervisor, config)
        found: dict[str, list[float]] = rank["gradients"]
        return found

    expected = gradients_of(batch_per_device=16)
    found = gradients_of(mode="dp", num_devices=2, batch_per_device=8)
    assert len(found) > 2
    assert found.keys() == expected.keys()
    for tensor, gradient in found.items():
        assert relative_difference(gradient, expected[tensor]) < 1e-5, tensor


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("scripted", "dp on a CPU cannot copy this model: it is a ScriptModule"),
        ("locked", "dp on a CPU cannot copy this model: TypeError: cannot pickle '_thread.lock'"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_a_model_that_our_replicas_cannot_copy_is_refused_with_the_way_out(
    function: str, words: str
) -> None:
    model = gradients.tied()
    if function == "scripted":
        model = torch.jit.script(model)
    else:
        model.lock = threading.Lock()
    with pytest.raises(RunFailed, match=re.escape(words)) as caught:
        wrap_on_cpu(model, 2)
    assert "--mode single,ddp" in caught.value.hint


def relative_difference(values: list[float], expected: list[float]) -> float:
    """Largest difference, relative to the largest expected value."""
    largest = max(map(abs, expected))
    return max(abs(a - b) for a, b in zip(values, expected, strict=True)) / largest


def test_batchnorm_statistics_of_dp_come_from_the_first_replica(
    supervisor: Supervisor, cpu_config: Make
) -> None:
    """As with torch's DataParallel: the others' changes of their buffers are lost."""

    def buffers(mode: str, **changes: Any) -> dict[str, list[float]]:
        config = cpu_config(mode=mode, model="tiny-cnn", **changes)
        (rank,) = one_step(supervisor, config)
        found: dict[str, list[float]] = rank["buffers"]
        return found

    first_half = buffers("single", batch_per_device=8)
    replicas = buffers("dp", num_devices=2, batch_per_device=8)
    assert replicas["model.1.num_batches_tracked"] == [1.0]
    assert replicas["model.1.running_mean"] == pytest.approx(
        first_half["model.1.running_mean"], rel=1e-5, abs=1e-7
    )


def test_ddp_gets_its_options_and_otherwise_keeps_torchs_defaults(
    supervisor: Supervisor, cpu_config: Make
) -> None:
    def settings(**options: Any) -> dict[str, Any]:
        ddp = DdpOptions(**options)
        config = cpu_config(mode="ddp", num_devices=1, batch_per_device=8, ddp=ddp)
        (rank,) = one_step(supervisor, config)
        found: dict[str, Any] = rank["ddp"]
        return found

    plain = {"static_graph": False, "find_unused_parameters": False}
    assert settings() == {**plain, "gradient_as_bucket_view": False, "cap": 25 * 2**20}
    assert settings(bucket_cap_mb=4.0, gradient_as_bucket_view=True) == {
        **plain,
        "gradient_as_bucket_view": True,
        "cap": 4 * 2**20,
    }
