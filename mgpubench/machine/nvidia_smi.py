"""What nvidia-smi says; empty if it is missing, fails or hangs."""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Sequence
from pathlib import Path

from mgpubench.machine.ask import file_text, program_answer

DRIVER = Path("/sys/module/nvidia/version")

GPU_STATE = (
    *("index", "uuid", "name", "driver_version", "memory.total", "memory.used", "pstate"),
    *("temperature.gpu", "power.draw", "power.limit", "power.default_limit", "clocks.sm"),
    *("clocks.max.sm", "persistence_mode", "ecc.mode.current"),
    *("pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max"),
)
"""Properties of a GPU under nvidia-smi's names. Every driver of recent years knows them."""

CORRUPTED_INFOROM = 14
"""Of its exit codes the one that comes with a good answer, as its manual says."""

EXIT_CODES = {
    8: "a GPU lacks its external power",
    10: "a GPU has a problem with its interrupts",
    CORRUPTED_INFOROM: "the infoROM of a GPU is corrupted",
    15: "a GPU has fallen off the bus",
}
"""Its exit codes that are about one GPU, in the words of its manual. It answers for the others."""

MIG_MODE = "mig.mode.current"
HELD_BACK = "clocks_event_reasons.active"
HELD_BACK_BEFORE_535 = "clocks_throttle_reasons.active"

_UNKNOWN = re.compile(r"\[|N/A|Not Supported|Unknown", re.IGNORECASE)

_LISTED_GPU = re.compile(r"^GPU \d+: ", re.MULTILINE)

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
    """What nvidia-smi prints; empty if it is missing, fails or does not answer.

    An exit code that it also has when it lists the GPUs is a warning about one of them, such as 14
    for a corrupted infoROM, and no failure.
    """
    usual = usual_exit_code()
    if usual is None:
        return ""
    answer = program_answer("nvidia-smi", *arguments)
    return answer.text if answer.exit_code in (0, usual, CORRUPTED_INFOROM) else ""


@functools.cache
def usual_exit_code() -> int | None:
    """Its exit code if it works; None if it is missing, fails or hangs.

    Cached, so that nothing waits for it twice.
    """
    answer = program_answer("nvidia-smi", "-L")
    if answer.exit_code == 0:
        return 0 if answer.text else None
    return answer.exit_code if _LISTED_GPU.search(answer.text) else None


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
