"""What the control groups of this process let it have: cores and memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mgpubench.machine.ask import file_text

CGROUP = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")

UNLIMITED_BYTES = 2**60
"""More than any machine has. Version 1 of cgroups writes a number of that size for no limit."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """What a cgroup lets its processes have."""

    limit_bytes: int
    free_bytes: int


def quota_cores() -> float | None:
    """CPU time per second that the cgroups allow, in cores; None if there is no limit."""
    quotas = [
        quota
        for folder in _own_cgroups("cpu")
        for quota in (_quota_v2(folder), _quota_v1(_v1("cpu", folder)))
        if quota is not None
    ]
    return min(quotas, default=None)


def memory_limit(total_bytes: int | None) -> MemoryLimit | None:
    """The tightest limit on this process; None if none is below what the machine has."""
    total_bytes = total_bytes or UNLIMITED_BYTES
    limits = [
        MemoryLimit(int(limit), max(0, int(limit) - int(used or 0)))
        for folder in _own_cgroups("memory")
        for limit, used in _limit_and_use(folder)
        if limit.isdecimal() and 0 < int(limit) < total_bytes
    ]
    return min(limits, key=lambda limit: limit.free_bytes, default=None)


def _limit_and_use(folder: Path) -> Iterator[tuple[str, str]]:
    """Limit and use of memory as versions 2 and 1 write them; empty where there is no file."""
    v1 = _v1("memory", folder)
    for limit, used in (
        (folder / "memory.max", folder / "memory.current"),
        (v1 / "memory.limit_in_bytes", v1 / "memory.usage_in_bytes"),
    ):
        yield file_text(limit).strip(), file_text(used).strip()


def _own_cgroups(controller: str) -> list[Path]:
    """The cgroup of this process and those above it: a batch system limits one of them."""
    paths = []
    for line in file_text(OWN_CGROUP).splitlines():
        controllers, path = line.split(":", 2)[1:]
        if not controllers or controller in controllers.split(","):
            own = CGROUP / path.lstrip("/")
            paths += [own, *(parent for parent in own.parents if parent.is_relative_to(CGROUP))]
    return paths or [CGROUP]


def _v1(controller: str, folder: Path) -> Path:
    """Where version 1 of cgroups keeps a controller's part of a folder."""
    return CGROUP / controller / folder.relative_to(CGROUP)


def _quota_v2(folder: Path) -> float | None:
    words = file_text(folder / "cpu.max").split()
    return _cores(*words) if len(words) == 2 else None  # "max 100000" is no limit


def _quota_v1(folder: Path) -> float | None:
    limit = file_text(folder / "cpu.cfs_quota_us").strip()
    period = file_text(folder / "cpu.cfs_period_us").strip()
    return _cores(limit, period)  # a limit of -1 is none


def _cores(quota: str, period: str) -> float | None:
    """The cores of a quota; None if it is none, also if the kernel's file shows only zeros."""
    if not quota.isdecimal() or not period.isdecimal() or not int(quota) * int(period):
        return None
    return int(quota) / int(period)
