"""What the configuration of a run derives from its fields, and the options of DDP."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from mgpubench.config.run_config import DdpOptions, RunConfig


def test_a_run_is_frozen(cpu_config: Callable[..., RunConfig]) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        cpu_config().steps = 5  # type: ignore[misc]


def test_a_run_survives_pickling(cpu_config: Callable[..., RunConfig]) -> None:
    config = cpu_config(mode="ddp", num_devices=2)
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_run_derives_batch_steps_and_names(cpu_config: Callable[..., RunConfig]) -> None:
    config = cpu_config(mode="ddp", num_devices=3, batch_per_device=5, warmup_steps=2, steps=7)
    assert config.global_batch == 15
    assert config.total_steps == 9
    assert config.label == "ddp x3"


def test_a_run_of_a_variant_is_called_by_it(cpu_config: Callable[..., RunConfig]) -> None:
    assert cpu_config(mode="ddp", num_devices=2, variant="cap50").label == "ddp x2 (cap50)"


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"bucket_cap_mb": 25.0},  # not torch's default, whose first bucket is smaller
        {"bucket_cap_mb": 0.5, "static_graph": True},
        {"gradient_as_bucket_view": True, "static_graph": True, "find_unused_parameters": True},
    ],
    ids=str,
)
def test_only_changed_options_of_ddp_are_passed_on(changed: dict[str, Any]) -> None:
    assert DdpOptions(**changed).changed == changed


def test_an_option_of_ddp_at_its_default_is_not_changed() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(DdpOptions)}
    assert DdpOptions(**defaults).changed == {}  # type: ignore[arg-type]


def test_options_of_ddp_have_the_names_and_defaults_of_torch() -> None:
    from torch.nn.parallel import DistributedDataParallel

    parameters = inspect.signature(DistributedDataParallel).parameters
    own = {"comm_hook", "sync_batchnorm", "zero"}
    for field in dataclasses.fields(DdpOptions):
        assert field.name in own or parameters[field.name].default == field.default


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, ""),
        ({"backend": "gloo"}, ""),  # the default on a CPU
        ({"backend": "mpi"}, "backend=mpi"),
        ({"cudnn_benchmark": True}, "cudnn_benchmark=true"),
        ({"ddp": DdpOptions(bucket_cap_mb=50.0)}, "bucket_cap_mb=50"),
        ({"ddp": DdpOptions(bucket_cap_mb=25.1234567)}, "bucket_cap_mb=25.1234567"),
        ({"ddp": DdpOptions(bucket_cap_mb=0.1 + 0.2)}, "bucket_cap_mb=0.30000000000000004"),
        (
            {"ddp": DdpOptions(static_graph=True, bucket_cap_mb=1.5), "cudnn_benchmark": True},
            "bucket_cap_mb=1.5;cudnn_benchmark=true;static_graph=true",
        ),
        ({"env": (("OMP_NUM_THREADS", "2"),)}, "env:OMP_NUM_THREADS=2"),
        (
            {"env": (("B", "x=y"), ("A", "")), "ddp": DdpOptions(static_graph=True)},
            "env:A=;env:B=x=y;static_graph=true",
        ),
    ],
    ids=str,
)
def test_options_are_text_in_alphabetical_order(
    cpu_config: Callable[..., RunConfig], changes: dict[str, Any], options: str
) -> None:
    assert cpu_config(mode="ddp", num_devices=2, **changes).options == options


def test_a_backend_of_cuda_is_an_option_only_if_it_is_not_the_default(
    cpu_config: Callable[..., RunConfig],
) -> None:
    def options(backend: str, effective_mode: str) -> str:
        return cpu_config(
            mode="ddp", device_type="cuda", backend=backend, effective_mode=effective_mode
        ).options

    assert options("nccl", "ddp") == options("gloo", "oversubscribed") == ""
    assert options("gloo", "ddp") == "backend=gloo"
