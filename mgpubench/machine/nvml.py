"""What NVML, the library of NVIDIA's driver, says about each GPU of the machine, by its UUID.

NVML numbers all GPUs, whatever CUDA_VISIBLE_DEVICES is. Each call may fail alone, so each figure
may be unknown alone. Calls that may hang are the caller's business.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mgpubench.results.clock_reasons import names_of_reasons
from mgpubench.results.telemetry import LOST

NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
VERSION_MISMATCH = 25

ERRORS = {
    NOT_SUPPORTED: "not supported",
    NO_PERMISSION: "no permission",
    9: "driver not loaded",
    10: "timeout",
    12: "library not found",
    FUNCTION_NOT_FOUND: "driver too old",
    GPU_IS_LOST: LOST,
    16: "needs a reset",
    18: "driver and library differ in version",
    999: "unknown error",
}
"""NVML's error codes in words."""

NEVER = (NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND)
"""Errors after which the same call is not worth another try. The figure just does not exist."""

TEMPERATURE_SENSOR = 0
SM_CLOCK, MEMORY_CLOCK = 1, 2

# The newer name first: older drivers lack it, and newer ones will lose the older name.
TEMPERATURE = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


class NvmlUnavailable(Exception):
    """Why there are no figures of GPUs at all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuFigures:
    """One GPU at one moment. Unknown is None, and empty for text."""

    uuid: str
    error: str = ""
    utilization: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: int | None = None
    fan: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    clock_reasons: str = ""


class NvmlGpu:
    """One GPU, or one MIG slice of a GPU."""

    def __init__(self, nvml: Any, uuid: str, handle: Any, parent: Any = None) -> None:
        self.uuid = uuid
        self._nvml = nvml
        self._handle = handle
        self._parent = handle if parent is None else parent
        """Temperature, power, fan and clocks of a MIG slice are those of its GPU."""
        self._never: set[str] = set()
        """Functions that this GPU does not have."""
        self._error = ""
        self._is_lost = False

    def figures(self) -> GpuFigures:
        """All figures that are known now."""
        self._error = ""
        whole, part = self._parent, self._handle
        memory = self._ask(part, "nvmlDeviceGetMemoryInfo")
        rates = self._ask(part, "nvmlDeviceGetUtilizationRates")
        fan = self._ask(whole, "nvmlDeviceGetFanSpeed")
        power_mw = self._ask(whole, "nvmlDeviceGetPowerUsage")
        energy_mj = self._ask(whole, "nvmlDeviceGetTotalEnergyConsumption")
        temperature_c = self._ask_either(TEMPERATURE, TEMPERATURE_SENSOR)
        reasons = self._ask_either(REASONS)
        sm_clock_mhz = self._ask(whole, "nvmlDeviceGetClockInfo", SM_CLOCK)
        memory_clock_mhz = self._ask(whole, "nvmlDeviceGetClockInfo", MEMORY_CLOCK)
        if self._is_lost:  # in the middle: what was answered before means nothing
            return GpuFigures(uuid=self.uuid, error=self._error)
        return GpuFigures(
            uuid=self.uuid,
            error=self._error,
            utilization=None if rates is None else rates.gpu / 100,
            memory_used_bytes=None if memory is None else memory.used,
            memory_total_bytes=None if memory is None else memory.total,
            temperature_c=temperature_c,
            fan=None if fan is None else fan / 100,
            power_w=None if power_mw is None else power_mw / 1000,
            energy_j=None if energy_mj is None else energy_mj / 1000,
            sm_clock_mhz=sm_clock_mhz,
            memory_clock_mhz=memory_clock_mhz,
            clock_reasons=";".join(names_of_reasons(reasons or 0)),
        )

    def _ask_either(self, names: tuple[str, ...], *arguments: object) -> Any:
        """What the first function answers that this driver, and this binding, has."""
        for name in names:
            if name not in self._never and hasattr(self._nvml, name):
                answer = self._ask(self._parent, name, *arguments)
                if answer is not None or name not in self._never:
                    return answer
        return None

    def _ask(self, handle: Any, name: str, *arguments: object) -> Any:
        """What one function answers; None if it fails, which is noted if it matters."""
        if self._is_lost:
            self._error = _in_words(GPU_IS_LOST)
        if self._is_lost or name in self._never:
            return None
        try:
            return getattr(self._nvml, name)(handle, *arguments)
        except self._nvml.NVMLError as error:
            self._note(name, error.value)
        except AttributeError:  # another version of the binding
            self._never.add(name)
        return None

    def _note(self, name: str, code: int) -> None:
        if code in (*NEVER, VERSION_MISMATCH):
            self._never.add(name)
            return
        # It does not come back before the machine restarts.
        self._is_lost = self._is_lost or code == GPU_IS_LOST
        if self._is_lost or not self._error:
            self._error = _in_words(GPU_IS_LOST if self._is_lost else code)


def open_nvml() -> list[NvmlGpu]:
    """All GPUs of the machine. A GPU that is split by MIG is left out, and its slices are there.

    Raises:
        NvmlUnavailable: if there is no NVML, no driver, or no binding.
    """
    try:
        nvml: Any = importlib.import_module("pynvml")
    # Another module of this name may fail in any way.
    except Exception as error:
        raise NvmlUnavailable(f"nvidia-ml-py cannot be imported ({error})") from error
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise NvmlUnavailable(f"NVML: {_in_words(error.value)}") from error
    return [gpu for index in range(count) for gpu in _gpus_at(nvml, index)]


def _gpus_at(nvml: Any, index: int) -> Iterator[NvmlGpu]:
    handle = _answer(nvml, "nvmlDeviceGetHandleByIndex", index)
    uuid = None if handle is None else _answer(nvml, "nvmlDeviceGetUUID", handle)
    if uuid is None:  # lost before we came, or not ours to see
        return
    slices = list(_mig_slices(nvml, handle))
    for mig_uuid, mig in slices:
        yield NvmlGpu(nvml, mig_uuid, mig, handle)
    if not slices:
        yield NvmlGpu(nvml, _text(uuid), handle)


def _mig_slices(nvml: Any, handle: Any) -> Iterator[tuple[str, Any]]:
    modes = _answer(nvml, "nvmlDeviceGetMigMode", handle)
    if not modes or not modes[0]:
        return
    for place in range(_answer(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        mig = _answer(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        uuid = None if mig is None else _answer(nvml, "nvmlDeviceGetUUID", mig)
        if uuid is not None:
            yield _text(uuid), mig


def _answer(nvml: Any, name: str, *arguments: object) -> Any:
    """What a function answers; None if it fails, or if this binding does not have it."""
    try:
        return getattr(nvml, name)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def _text(uuid: str | bytes) -> str:
    # Older versions of the binding answer with bytes.
    return uuid.decode() if isinstance(uuid, bytes) else uuid


def _in_words(code: int) -> str:
    return f"{ERRORS.get(code, 'error')} (NVML error {code})"
