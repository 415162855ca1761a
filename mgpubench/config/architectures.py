"""Whether an installed torch has code for a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mgpubench.config.machine_facts import Gpu, Machine
from mgpubench.errors import RequestRefused

_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")
"""Machine code or PTX, the major and the minor version, and what it is restricted to."""


def has_code_for(gpu: Gpu, architectures: Sequence[str]) -> bool:
    """True if one of torch's architectures runs on a GPU, or if none is known.

    Machine code runs on the same major version from its minor version on. PTX (`compute_90`) is
    compiled by the driver for everything newer. With an `f` both stay within their major version,
    and with an `a` (sm_90a) they run on exactly their own version.
    """
    known = [found for name in architectures if (found := _ARCHITECTURE.fullmatch(name))]
    return not known or any(_runs_on(found, gpu.capability) for found in known)


def _runs_on(architecture: re.Match[str], capability: tuple[int, int]) -> bool:
    kind, major, minor, restriction = architecture.groups()
    built = int(major), int(minor)
    if restriction == "a" or capability < built:
        return capability == built
    return capability[0] == built[0] or (kind == "compute" and not restriction)


def refuse_without_code(machine: Machine, used: Iterable[int]) -> None:
    """Refuse GPUs on which every run would fail with "no kernel image".

    Raises:
        RequestRefused: naming the first such GPU, and what torch has code for.
    """
    for number in sorted(used):
        gpu = machine.gpus[number]
        if not has_code_for(gpu, machine.cuda_architectures):
            raise RequestRefused(
                f"this torch has no code for GPU {number} ({gpu.name}, "
                f"sm_{gpu.capability[0]}{gpu.capability[1]}); it has code for "
                f"{', '.join(machine.cuda_architectures)}",
                "Install a torch that is built for this GPU, choose other GPUs with "
                "CUDA_VISIBLE_DEVICES, or add --device cpu.",
            )
