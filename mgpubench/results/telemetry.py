"""The file telemetry.csv: what the devices did, second by second, and how it is read again.

`machine.sampler` writes it. 8 hours on 8 GPUs are some 260,000 rows, so only what figures need is
parsed. A row that cannot be read is left out: it is one second of one device.
"""

from __future__ import annotations

import csv
import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

TELEMETRY_CSV = "telemetry.csv"

MACHINE = "machine"
"""In the column `device`: the row is about the machine, and not about a GPU."""

LOST = "lost"
"""The error of a GPU that has fallen off the bus."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TelemetryRecord:
    """One row of telemetry.csv: one device, or the machine, at one moment."""

    sampled_at: str
    """UTC, as ISO 8601."""
    clock_s: float
    """Reading of `perf_counter`, which is one clock for all processes of the machine."""
    run_id: str = ""
    """Empty between two runs."""
    device: str
    """UUID of a GPU, or `machine`."""
    error: str = ""
    """Why figures of the GPU are unknown, if not because it does not have them."""
    utilization: float | None = None
    """Share of the time, 0 to 1, in which a GPU had work; of the machine, that of its cores."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: int | None = None
    fan: float | None = None
    """Share of the highest speed, 0 to 1."""
    power_w: float | None = None
    energy_j: float | None = None
    """Since the driver was loaded."""
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    clock_reasons: str = ""
    """Why the clocks are not higher: names joined by `;`."""
    own_cpu_share: float | None = None
    """Share of the machine's cores that the processes of mgpubench took, 0 to 1."""
    own_memory_bytes: int | None = None
    """Resident memory of these processes. What several share is counted in each."""
    own_processes: int | None = None
    sampler_cpu_s: float | None = None
    """CPU time of the sampler itself, since it started."""


TELEMETRY_COLUMNS = tuple(column.name for column in fields(TelemetryRecord))


class Sample(NamedTuple):
    """What figures, and the screen, need of a row. Unknown is None or empty."""

    clock_s: float
    device: str
    error: str
    utilization: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    temperature_c: float | None
    power_w: float | None
    energy_j: float | None
    clock_reasons: str
    sm_clock_mhz: float | None
    own_cpu_share: float | None
    own_memory_bytes: float | None
    sampler_cpu_s: float | None

    @property
    def is_lost(self) -> bool:
        """True if the GPU has fallen off the bus."""
        return self.error.startswith(LOST)


_pick = itemgetter(*map(TELEMETRY_COLUMNS.index, Sample._fields))


class TelemetryFile:
    """The rows of a file, from a place on. Lines that are not finished are left for later."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self.offset = offset
        """Bytes that have been read."""

    def skip(self) -> None:
        """Leave out all that is there now."""
        try:
            self.offset = self._path.stat().st_size
        except OSError:
            self.offset = 0

    def new_samples(self) -> Iterator[Sample]:
        """What was written since the last call; nothing if there is no such file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self.offset)
                yield from parse_lines(self._whole_lines(file))
        except OSError:
            return

    def _whole_lines(self, file: Iterable[bytes]) -> Iterator[str]:
        for line in file:
            if not line.endswith(b"\n"):
                return
            self.offset += len(line)
            yield line.decode(errors="replace")


def read_telemetry(path: Path) -> Iterator[Sample]:
    """All rows of a file.

    Raises:
        OSError: if it cannot be read.
    """
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        yield from parse_lines(file)


def by_device(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """The samples of each device, in their order."""
    devices: defaultdict[str, list[Sample]] = defaultdict(list)
    with _no_garbage():
        for sample in samples:
            devices[sample.device].append(sample)
    return dict(devices)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Nothing of what is read is garbage, and looking for it takes a quarter of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def parse_lines(lines: Iterable[str]) -> Iterator[Sample]:
    """The samples in lines of CSV, without the header and without what is no sample."""
    for cells in csv.reader(lines):
        if len(cells) == len(TELEMETRY_COLUMNS) and cells[0] != TELEMETRY_COLUMNS[0]:
            sample = _sample(_pick(cells))
            if sample is not None:
                yield sample


def _sample(cells: Sequence[str]) -> Sample | None:
    # One by one, without a loop or a constructor: this is what reading 260,000 rows takes.
    at, device, error, use, used, total, heat, power, energy, reasons, clock, *own = cells
    own_cpu, own_memory, sampler_cpu = own
    try:
        values = (
            float(at),
            device,
            error,
            float(use) if use else None,
            float(used) if used else None,
            float(total) if total else None,
            float(heat) if heat else None,
            float(power) if power else None,
            float(energy) if energy else None,
            reasons,
            float(clock) if clock else None,
            float(own_cpu) if own_cpu else None,
            float(own_memory) if own_memory else None,
            float(sampler_cpu) if sampler_cpu else None,
        )
    except ValueError:
        return None
    return tuple.__new__(Sample, values)
