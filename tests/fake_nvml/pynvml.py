"""A pretended nvidia-ml-py for the sampler's process: GPUs by the dozen, and every way to fail.

FAKE_NVML is JSON: `gpus` (their number), `fail` ({"0": {"nvmlDeviceGetFanSpeed": 3}}: error codes
by GPU and function, or `*` for all GPUs; "hang" hangs), `after` (seconds until the failures begin),
`init` (the error code of nvmlInit), `missing` (functions that this binding lacks), `mig` (slices of
each GPU), and `values` (answers by function).
"""

from __future__ import annotations

import json
import math
import os
import time
from types import SimpleNamespace
from typing import Any

_SETTINGS: dict[str, Any] = json.loads(os.environ.get("FAKE_NVML", "{}"))
_BEGAN_S = time.monotonic()
_IDLE, _POWER_LIMIT = 0x1, 0x4


class NVMLError(Exception):
    """As in the real binding: `value` is the code."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


def _elapsed_s() -> float:
    return time.monotonic() - _BEGAN_S


def _may_fail(name: str, handle: Any) -> None:
    if _elapsed_s() < _SETTINGS.get("after", 0.0):
        return
    fail = _SETTINGS.get("fail", {})
    index = handle[0] if isinstance(handle, tuple) else None
    code = {**fail.get("*", {}), **fail.get(str(index), {})}.get(name)
    if code == "hang":
        time.sleep(3600)
    if code is not None:
        raise NVMLError(code)


def _function(name: str, answer: Any) -> Any:
    def function(*arguments: Any) -> Any:
        _may_fail(name, arguments[0] if arguments else None)
        fixed = _SETTINGS.get("values", {}).get(name)
        return answer(*arguments) if fixed is None else fixed

    return function


def _init() -> None:
    if code := _SETTINGS.get("init"):
        raise NVMLError(code)


def _wave(handle: Any) -> float:
    return math.sin(_elapsed_s() / 5 + handle[0])


def _power_mw(handle: Any) -> int:
    return 300_000 + 10_000 * handle[0]


_ANSWERS = {
    "nvmlInit": _init,
    "nvmlDeviceGetCount": lambda: _SETTINGS.get("gpus", 8),
    "nvmlDeviceGetHandleByIndex": lambda index: (index,),
    "nvmlDeviceGetUUID": lambda handle: (
        f"GPU-{handle[0]}" if len(handle) == 1 else f"MIG-{handle[0]}-{handle[1]}"
    ),
    "nvmlDeviceGetMigMode": lambda handle: (int("mig" in _SETTINGS), int("mig" in _SETTINGS)),
    "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 7,
    "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(
        total=80 * 2**30, used=int((40 + 5 * _wave(handle)) * 2**30)
    ),
    "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(
        gpu=int(90 + 10 * _wave(handle)), memory=50
    ),
    "nvmlDeviceGetFanSpeed": lambda handle: 40,
    "nvmlDeviceGetPowerUsage": _power_mw,
    "nvmlDeviceGetTotalEnergyConsumption": lambda handle: int(_power_mw(handle) * _elapsed_s()),
    "nvmlDeviceGetTemperature": lambda handle, sensor: int(60 + 5 * _wave(handle)),
    "nvmlDeviceGetTemperatureV": lambda handle, sensor: int(60 + 5 * _wave(handle)),
    "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: _POWER_LIMIT if handle[0] == 1 else 0,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: _IDLE,
    "nvmlDeviceGetClockInfo": lambda handle, kind: 1755 if kind == 1 else 2619,
}


def _mig_handle(handle: Any, place: int) -> Any:
    if place >= _SETTINGS.get("mig", 0):
        raise NVMLError(6)
    return (*handle, place)


_ANSWERS["nvmlDeviceGetMigDeviceHandleByIndex"] = _mig_handle

for _name, _answer in _ANSWERS.items():
    if _name not in _SETTINGS.get("missing", ()):
        globals()[_name] = _function(_name, _answer)
