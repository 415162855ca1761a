"""What nvidia-smi says; empty if it is missing, fails or hangs."""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Sequence
from pathlib import Path

from mgpubench.machine.ask import file_text, program_output

DRIVER = Path("/sys/module/nvidia/version")

GPU_STATE = (
    *("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "pstate"),
    *("temperature.gpu", "power.draw", "power.limit", "power.default_limit", "clocks.sm"),
    *("clocks.max.sm", "persistence_mode", "ecc.mode.current"),
    *("pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max"),
)
"""Properties of a GPU under nvidia-smi's names. Every driver of recent years knows them."""

MIG_MODE = "mig.mode.current"
HELD_BACK = "clocks_event_reasons.active"
HELD_BACK_BEFORE_535 = "clocks_throttle_reasons.active"

_UNKNOWN = re.compile(r"\[|N/A|Not Supported|Unknown", re.IGNORECASE)

_GPU_UUID = re.compile(r"^(?:GPU|MIG)-[\w/-]+$", re.MULTILINE)


def driver_version(*, is_usable: bool) -> str:
    """The version of the NVIDIA driver; empty if unknown.

    The kernel knows it at once, but also inside a container without GPUs. So it is asked only if
    the driver `is_usable`; otherwise nvidia-smi is.
    """
    answer = file_text(DRIVER) if is_usable else ""
    answer = answer or ask("--query-gpu=driver_version", "--format=csv,noheader")
    version = answer.partition("\n")[0].strip()
    return version if re.fullmatch(r"\d+(\.\d+)+", version) else ""


def ask(*arguments: str) -> str:
    """What nvidia-smi prints; empty if it is missing, fails or does not answer."""
    return program_output("nvidia-smi", *arguments) if answers() else ""


@functools.cache
def answers() -> bool:
    """False if it is missing, fails or hangs. Cached, so that nothing waits for it twice."""
    return bool(program_output("nvidia-smi", "-L"))


def gpu_state() -> tuple[dict[str, str], ...]:
    """The properties of each GPU of the machine that are known, visible to torch or not."""
    # nvidia-smi refuses the whole query if it contains a property that its driver does not know.
    for more in ((MIG_MODE, HELD_BACK), (MIG_MODE, HELD_BACK_BEFORE_535), ()):
        answer = ask(f"--query-gpu={','.join((*GPU_STATE, *more))}", "--format=csv,noheader")
        names = (*GPU_STATE, MIG_MODE, HELD_BACK) if more else GPU_STATE
        if found := parse_gpu_state(answer, names):
            return found
    return ()


def parse_gpu_state(answer: str, names: Sequence[str]) -> tuple[dict[str, str], ...]:
    """The lines of nvidia-smi's CSV, without values such as `[N/A]` and `Not Supported`."""
    try:
        lines = list(csv.reader(io.StringIO(answer), skipinitialspace=True))
    except csv.Error:
        return ()
    return tuple(
        {name: value for name, value in zip(names, line, strict=True) if not _UNKNOWN.match(value)}
        for line in lines
        if len(line) == len(names)
    )


def topology() -> str:
    """`nvidia-smi topo -m` without underlining, and with spaces instead of tabs."""
    answer = re.sub("\x1b\\[[0-9;]*m", "", ask("topo", "-m"))
    return answer.expandtabs(8).strip("\n")


def busy_gpus() -> tuple[str, ...]:
    """The UUID of a GPU for each process that computes on it."""
    answer = ask("--query-compute-apps=gpu_uuid", "--format=csv,noheader")
    return tuple(_GPU_UUID.findall(answer))
