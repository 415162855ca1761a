"""Each figure of a GPU may fail alone, and each failure has its words."""

from __future__ import annotations

import sys

import pytest

from mgpubench.machine.nvml import NvmlUnavailable, open_nvml
from tests.fakes import use_nvml

CALLS = {
    "nvmlDeviceGetMemoryInfo": "memory_used_bytes",
    "nvmlDeviceGetUtilizationRates": "utilization",
    "nvmlDeviceGetFanSpeed": "fan",
    "nvmlDeviceGetPowerUsage": "power_w",
    "nvmlDeviceGetTotalEnergyConsumption": "energy_j",
    "nvmlDeviceGetClockInfo": "sm_clock_mhz",
}


def test_figures_have_our_units(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "nvmlDeviceGetFanSpeed": 35,
        "nvmlDeviceGetPowerUsage": 310_500,
        "nvmlDeviceGetTotalEnergyConsumption": 2_500,
        "nvmlDeviceGetTemperatureV": 71,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x24,
    }
    use_nvml(monkeypatch, gpus=2, values=values)
    first, second = open_nvml()
    assert (first.uuid, second.uuid) == ("GPU-0", "GPU-1")
    figures = first.figures()
    assert (figures.fan, figures.power_w, figures.energy_j) == (0.35, 310.5, 2.5)
    assert (figures.temperature_c, figures.clock_reasons) == (71, "power-limit;heat")
    assert (figures.sm_clock_mhz, figures.memory_clock_mhz) == (1755, 2619)
    assert figures.memory_total_bytes == 80 * 2**30
    assert figures.utilization == pytest.approx(0.9, abs=0.02)
    assert figures.error == ""


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("code", [3, 4, 13])
def test_what_a_gpu_does_not_have_is_unknown_and_no_error(
    monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    use_nvml(monkeypatch, gpus=1, fail={"0": {call: code}})
    figures = open_nvml()[0].figures()
    assert getattr(figures, CALLS[call]) is None
    assert figures.error == ""
    assert figures.temperature_c is not None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (9, "driver not loaded (NVML error 9)"),
        (12, "library not found (NVML error 12)"),
        (16, "needs a reset (NVML error 16)"),
        (18, "driver and library differ in version (NVML error 18)"),
        (999, "unknown error (NVML error 999)"),
        (77, "error (NVML error 77)"),
    ],
)
def test_another_failure_leaves_one_figure_unknown_and_is_named(
    monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    use_nvml(monkeypatch, gpus=1, fail={"0": {"nvmlDeviceGetPowerUsage": code}})
    gpu = open_nvml()[0]
    for _ in range(2):  # it is asked again, since it may pass
        figures = gpu.figures()
        assert (figures.power_w, figures.error) == (None, words)
        assert figures.utilization is not None


def test_a_gpu_that_is_lost_has_no_figures_and_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Error 15, in the middle of the calls of one sample."""
    nvml = use_nvml(monkeypatch, gpus=2, fail={"1": {"nvmlDeviceGetPowerUsage": 15}})
    first, second = open_nvml()
    lost = second.figures()
    assert (lost.error, lost.power_w) == ("lost (NVML error 15)", None)
    assert (lost.utilization, lost.memory_used_bytes) == (None, None)
    assert first.figures().error == ""
    monkeypatch.delattr(nvml, "nvmlDeviceGetMemoryInfo")
    assert second.figures() == lost


@pytest.mark.parametrize("how", ["function", "binding"])
def test_older_drivers_and_bindings_are_asked_under_the_older_names(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    newer = ["nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons"]
    if how == "binding":
        use_nvml(monkeypatch, gpus=1, missing=newer)
    else:
        use_nvml(monkeypatch, gpus=1, fail={"0": dict.fromkeys(newer, 13)})
    gpu = open_nvml()[0]
    for _ in range(2):
        figures = gpu.figures()
        assert figures.temperature_c == pytest.approx(60, abs=2)
        assert figures.clock_reasons == "idle"


def test_older_names_that_newer_bindings_lack_are_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    older = ["nvmlDeviceGetTemperature", "nvmlDeviceGetCurrentClocksThrottleReasons"]
    use_nvml(monkeypatch, gpus=1, missing=older)
    assert open_nvml()[0].figures().temperature_c is not None


def test_mig_slices_have_the_temperature_and_power_of_their_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_nvml(monkeypatch, gpus=2, mig=2)
    gpus = open_nvml()
    assert [gpu.uuid for gpu in gpus] == ["MIG-0-0", "MIG-0-1", "MIG-1-0", "MIG-1-1"]
    assert [gpu.figures().power_w for gpu in gpus] == [300.0, 300.0, 310.0, 310.0]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "NVML: driver not loaded (NVML error 9)"),
        (12, "NVML: library not found (NVML error 12)"),
        (18, "NVML: driver and library differ in version (NVML error 18)"),
        (999, "NVML: unknown error (NVML error 999)"),
    ],
)
def test_without_a_driver_there_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    use_nvml(monkeypatch, init=code)
    with pytest.raises(NvmlUnavailable) as caught:
        open_nvml()
    assert str(caught.value) == reason


def test_without_the_binding_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlUnavailable, match="nvidia-ml-py cannot be imported"):
        open_nvml()


def test_a_gpu_that_was_lost_before_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    use_nvml(monkeypatch, gpus=3, fail={"1": {"nvmlDeviceGetUUID": 15}})
    assert [gpu.uuid for gpu in open_nvml()] == ["GPU-0", "GPU-2"]
