"""What a plan needs to know about the machine; `machine.cuda` finds it out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mgpubench.config.digest import hex_digits

MAX_THREADS = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One visible CUDA device."""

    name: str
    uuid: str
    memory_bytes: int
    capability: tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What a plan needs to know about the machine. Unknown is empty."""

    gpus: tuple[Gpu, ...]
    cuda_reason: str
    """Why torch cannot use CUDA, in torch's own words; empty where it can."""
    cuda_visible_devices: str | None
    cpu_model: str
    usable_cores: int
    """Cores that this process may use, after CPU affinity and cgroup quota."""
    omp_num_threads: int | None
    """The user's own OMP_NUM_THREADS, which overrides our number of threads."""
    cuda_architectures: tuple[str, ...] = ()
    """What the installed torch has code for: `sm_90`, or PTX as `compute_90`. Empty: unknown."""
    torch_version: str = ""
    torchvision_version: str = ""
    cuda_version: str = ""
    nccl_version: str = ""
    driver_version: str = ""
    python_version: str = ""

    @property
    def num_gpus(self) -> int:
        """GPUs that can take part. A GPU that is listed twice counts once."""
        return len({gpu.uuid for gpu in self.gpus})

    @property
    def fingerprint(self) -> str:
        """8 hex digits that identify the machine: a hash of CPU model, cores and GPU UUIDs."""
        identity = "\n".join([self.cpu_model, str(self.usable_cores), *(g.uuid for g in self.gpus)])
        return hex_digits(hashlib.sha256(identity.encode()).digest(), 8)


def fingerprint_of(machines: Sequence[Machine]) -> str:
    """8 hex digits that identify the machines of a session: the first one's if all are alike.

    So sessions on one and on several of them can be compared.
    """
    if len({_kind_of(machine) for machine in machines}) == 1:
        return machines[0].fingerprint
    identity = "\n".join(machine.fingerprint for machine in machines)
    return hex_digits(hashlib.sha256(identity.encode()).digest(), 8)


def _kind_of(machine: Machine) -> tuple[object, ...]:
    return machine.cpu_model, machine.usable_cores, tuple(gpu.name for gpu in machine.gpus)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeDevices:
    """Another machine of a session, as far as a plan needs to know it."""

    machine: Machine
    device_type: str
    counts: tuple[int, ...]
    """Its numbers of devices, in the order of the first machine's; empty if they do not matter."""


def omp_num_threads(environ: Mapping[str, str]) -> int | None:
    """The user's OMP_NUM_THREADS; None if it is unset or not a possible number."""
    first = environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and 0 < int(first) <= MAX_THREADS else None
