"""What torch says about machines that we do not have: GPUs in slices, too old or broken."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mgpubench.launch.environment import loopback_interface
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import open_supervisor
from mgpubench.machine import cuda
from mgpubench.session.prepare import ask_torch

SetUp = Callable[..., None]


@pytest.fixture
def set_up_cuda(monkeypatch: pytest.MonkeyPatch) -> SetUp:
    """CUDA with a number of GPUs. Before it is started, the driver's library counts others."""

    def set_up(num_gpus: int, *, by_driver: int, error: Exception | None = None) -> None:
        counts = [by_driver]

        def init() -> None:
            if error:
                raise error
            counts[0] = num_gpus

        def properties(index: int) -> Any:
            if index >= counts[0]:
                raise AssertionError("Invalid device id")
            return SimpleNamespace(
                name="NVIDIA X", uuid=f"u{index}", total_memory=2**30, major=9, minor=0
            )

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "init", init)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: counts[0])
        monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
        monkeypatch.setattr(
            torch.cuda, "can_device_access_peer", lambda first, second: first < second
        )

    return set_up


def test_gpus_are_counted_as_cuda_counts_them(set_up_cuda: SetUp) -> None:
    """C56: a host with eight GPUs in slices, of which a process sees one."""
    set_up_cuda(1, by_driver=8)
    found = cuda.describe()
    assert [gpu.uuid for gpu in found.gpus] == ["u0"]
    assert found.gpus[0].capability == (9, 0)
    assert found.cuda_reason == ""
    assert cuda.describe_build().without_peer_access == ()


def test_pairs_without_peer_access_are_named(set_up_cuda: SetUp) -> None:
    set_up_cuda(3, by_driver=3)
    assert cuda.describe_build().without_peer_access == ((1, 0), (2, 0), (2, 1))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("No CUDA GPUs are available"),
        torch.cuda.DeferredCudaCallError("CUDA call failed lazily"),
    ],
)
def test_a_cuda_that_cannot_be_started_is_a_reason(set_up_cuda: SetUp, error: Exception) -> None:
    set_up_cuda(2, by_driver=2, error=error)
    found = cuda.describe()
    assert found.gpus == ()
    assert found.cuda_reason == str(error)
    assert cuda.describe_build().without_peer_access == ()


def test_a_gpu_that_is_too_old_for_cudnn_does_not_matter(
    set_up_cuda: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below compute capability 7.5 torch raises an error instead of giving cuDNN's version."""

    def refuse() -> int:
        raise RuntimeError("cuDNN version 92400 is not compatible with devices with SM < 7.5")

    set_up_cuda(2, by_driver=2)
    monkeypatch.setattr(torch.backends.cudnn, "version", refuse)
    assert cuda.describe_build().cudnn_version is None


def test_the_interfaces_that_are_recorded_are_those_of_the_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The parent's own variables are not in effect there."""
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth8")
    with StopSignal().installed() as stop, open_supervisor(stop, ()) as supervisor:
        _, build = ask_torch(supervisor)
    loopback = loopback_interface()
    assert build.socket_interfaces == {
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
    }
