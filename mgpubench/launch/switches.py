"""Switches of a whole process, which a module may change while it is imported, and set back.

Workers come from a process that has imported torch, and train models of modules that they have not
seen before. Neither may change what a run measures.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mgpubench.launch.environment import LAUNCHER_VARIABLES
from mgpubench.machine.environment import DECIDING_VARIABLES


@dataclass(frozen=True, slots=True)
class Switch:
    """Something that belongs to the process as a whole."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


@contextmanager
def kept(switches: Sequence[Switch]) -> Iterator[dict[str, Any]]:
    """Set every switch back at the end; fills in the values that the body has left, by name."""
    before = [switch.read() for switch in switches]
    left: dict[str, Any] = {}
    try:
        yield left
    finally:
        for switch, value in zip(switches, before, strict=True):
            if (now := switch.read()) != value:
                left[switch.name] = now
                switch.write(value)


def turn(switches: Sequence[Switch], values: Mapping[str, Any]) -> None:
    """Write the values of some switches, by name."""
    for switch in switches:
        if switch.name in values:
            switch.write(values[switch.name])


def let_warnings_pass() -> None:
    """Let no warning be an error, whatever PYTHONWARNINGS says: torch and Pillow give some."""
    _set_error_filters([])


def _error_filters() -> list[Any]:
    return [filter_ for filter_ in warnings.filters if filter_[0] == "error"]


def _set_error_filters(filters: Sequence[Any]) -> None:
    """Turn these filters alone into errors. What is ignored stays so: torch ignores some."""
    others = [filter_ for filter_ in warnings.filters if filter_[0] != "error"]
    warnings.resetwarnings()  # it also forgets what it has decided before
    warnings.filters[:] = [*filters, *others]  # type: ignore[index]


def _cores() -> set[int] | None:
    read = getattr(os, "sched_getaffinity", None)
    return read(0) if read else None


def _set_cores(cores: set[int] | None) -> None:
    if cores is not None:
        os.sched_setaffinity(0, cores)


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it has been removed
        return None


def _set_folder(folder: str | None) -> None:
    if folder is not None:
        os.chdir(folder)


def _set_environment(values: Mapping[str, str]) -> None:
    for name in _environment():
        if name not in values:
            del os.environ[name]
    os.environ.update(values)


def _environment() -> dict[str, str]:
    """The variables that decide a number, and those of launchers."""
    return {
        name: value
        for name, value in os.environ.items()
        if DECIDING_VARIABLES.fullmatch(name) or LAUNCHER_VARIABLES.fullmatch(name)
    }


def _set_collector(values: tuple[bool, tuple[int, int, int]]) -> None:
    is_enabled, thresholds = values
    gc.set_threshold(*thresholds)
    (gc.enable if is_enabled else gc.disable)()


PROCESS = (
    # OpenMP binds the process that loads it to one core, if OMP_PROC_BIND is set.
    Switch("cores", _cores, _set_cores),
    Switch("current folder", _folder, _set_folder),
    Switch("warnings as errors", _error_filters, _set_error_filters),
    Switch("garbage collector", lambda: (gc.isenabled(), gc.get_threshold()), _set_collector),
    Switch("profiler", sys.getprofile, sys.setprofile),
    Switch("tracer", sys.gettrace, sys.settrace),
)
"""What any import may change."""

OF_MODULES = (
    *PROCESS,
    Switch(
        "start method",
        lambda: multiprocessing.get_start_method(allow_none=True),
        lambda method: multiprocessing.set_start_method(method, force=True),
    ),
    Switch("environment", _environment, _set_environment),
)
"""What a module of a user may change. Torch itself may set variables."""
