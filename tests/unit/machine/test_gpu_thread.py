"""A call that hangs in the driver costs figures, and never time."""

from __future__ import annotations

import pytest

from mgpubench.machine.gpu_thread import NO_ANSWER, GpuThread
from tests.fakes import use_nvml


def test_all_gpus_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    use_nvml(monkeypatch, gpus=3)
    thread = GpuThread()
    assert [gpu.uuid for gpu in thread.figures(10)] == ["GPU-0", "GPU-1", "GPU-2"]
    assert thread.why_none == ""


def test_gpus_that_answered_before_are_named_when_a_call_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml = use_nvml(monkeypatch, gpus=2)
    thread = GpuThread()
    assert len(thread.figures(10)) == 2
    nvml._SETTINGS["fail"] = {"1": {"nvmlDeviceGetFanSpeed": "hang"}}
    for _ in range(2):
        hanging = thread.figures(0.05)
        assert [(gpu.uuid, gpu.error) for gpu in hanging] == [
            ("GPU-0", NO_ANSWER),
            ("GPU-1", NO_ANSWER),
        ]
    assert thread.why_none == ""


def test_an_nvml_that_never_answers_is_a_reason_to_have_no_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_nvml(monkeypatch, gpus=1, fail={"0": {"nvmlDeviceGetUUID": "hang"}})
    thread = GpuThread()
    assert thread.figures(0.05) == []
    assert thread.why_none == NO_ANSWER


def test_without_nvml_it_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    use_nvml(monkeypatch, init=9)
    thread = GpuThread()
    assert thread.figures(10) == thread.figures(0) == []
    assert thread.why_none == "NVML: driver not loaded (NVML error 9)"


def test_a_machine_without_gpus_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    use_nvml(monkeypatch, gpus=0)
    thread = GpuThread()
    assert thread.figures(10) == []
    assert thread.why_none == "NVML sees no GPU"
