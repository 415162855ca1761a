"""The sampler: a process of its own that writes telemetry.csv, once a second.

    python -m mgpubench.machine.sampler FILE [TERMINAL]

It is started by the parent, and obeys the lines that it reads from stdin:

    run ID    a run starts
    end       the run has ended: sample now, and answer `ok`
    bye       end

It answers on stdout: `ok`, `nvml REASON` if there are no figures of GPUs, and `failed REASON` if
the file cannot be written. When stdin ends without `bye`, the parent was killed. Then it makes the
terminal whose file descriptor is TERMINAL usable again, since the parent's screen may be on it.
"""

from __future__ import annotations

import contextlib
import csv
import os
import select
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

import psutil

from mgpubench.machine.ask import known
from mgpubench.machine.family import Family
from mgpubench.machine.gpu_thread import GpuThread
from mgpubench.results.csv_format import format_cell, open_text
from mgpubench.results.telemetry import MACHINE, TELEMETRY_COLUMNS, TelemetryRecord

INTERVAL_S = 1.0
ANSWER_S = 0.5
"""How long a sample waits for NVML."""
MIN_SPAN_S = 0.2
"""Over a shorter time, CPU time says nothing: the kernel counts it in steps of 10 ms."""

END, BYE, RUN = "end", "bye", "run "
"""Lines on stdin."""
OK, NO_GPUS, FAILED = "ok", "nvml ", "failed "
"""Lines on stdout."""

LEAVE_SCREEN = b"\x1b[?1049l\x1b[?25h"
"""Leaves the alternate screen, and shows the cursor."""

_values = attrgetter(*TELEMETRY_COLUMNS)


class Sampler:
    """Takes samples, and writes them."""

    def __init__(self, path: Path) -> None:
        self.run_id = ""
        self._file = _open(path)
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._gpus = GpuThread()
        self._why_no_gpus = ""
        self._family = Family(os.getppid(), without=(os.getpid(),))
        self._machine_cpu = known(psutil.cpu_times)
        self._cores = psutil.cpu_count() or 1
        self._looked_at_s = time.perf_counter()

    def sample(self) -> None:
        """Write a row about the machine, and one about each GPU.

        Raises:
            OSError: if the file cannot be written.
        """
        rows = [self._machine_row(), *self._gpu_rows()]
        self._writer.writerows([format_cell(value) for value in _values(row)] for row in rows)
        self._file.flush()
        if self._gpus.why_none != self._why_no_gpus:
            self._why_no_gpus = self._gpus.why_none
            say(f"{NO_GPUS}{self._why_no_gpus}")

    def _gpu_rows(self) -> Iterator[TelemetryRecord]:
        figures = self._gpus.figures(ANSWER_S)
        moment = self._moment()
        for gpu in figures:
            values = asdict(gpu)
            yield TelemetryRecord(device=values.pop("uuid"), **moment, **values)

    def _machine_row(self) -> TelemetryRecord:
        moment, memory = self._moment(), known(psutil.virtual_memory)
        own = self._family.use()
        span_s = moment["clock_s"] - self._looked_at_s
        before, self._machine_cpu = self._machine_cpu, known(psutil.cpu_times)
        self._looked_at_s = moment["clock_s"]
        is_long = span_s >= MIN_SPAN_S
        cpu = time.process_time()
        return TelemetryRecord(
            device=MACHINE,
            **moment,
            utilization=_busy_share(before, self._machine_cpu) if is_long else None,
            memory_used_bytes=memory.total - memory.available if memory else None,
            memory_total_bytes=memory.total if memory else None,
            own_cpu_share=min(1.0, own.cpu_s / span_s / self._cores) if is_long else None,
            own_memory_bytes=own.memory_bytes,
            own_processes=own.processes,
            sampler_cpu_s=cpu,
        )

    def _moment(self) -> dict[str, Any]:
        return {
            "sampled_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "clock_s": round(time.perf_counter(), 3),
            "run_id": self.run_id,
        }


def _open(path: Path) -> Any:
    """The file, at its end, with a header and without an unfinished line."""
    size_bytes = path.stat().st_size if path.exists() else 0
    if size_bytes:
        with path.open("rb+") as file:
            file.seek(max(0, size_bytes - 2**16))
            tail = file.read()
            file.truncate(size_bytes - len(tail) + tail.rfind(b"\n") + 1)
    opened = open_text(path, "a")
    if not opened.tell():
        csv.writer(opened, lineterminator="\n").writerow(TELEMETRY_COLUMNS)
    return opened


def _busy_share(before: Any, after: Any) -> float | None:
    """The share of all cores' time in which they worked; None if the counters do not say."""
    if before is None or after is None:
        return None
    # Time of guests is counted as that of users too.
    names = [name for name in after._fields if not name.startswith("guest")]
    spent: dict[str, float] = {name: getattr(after, name) - getattr(before, name) for name in names}
    total = sum(spent.values())
    if total <= 0:
        return None
    idle = spent.get("idle", 0.0) + spent.get("iowait", 0.0)
    return min(1.0, max(0.0, 1 - idle / total))


class Lines:
    """The lines that come from stdin."""

    def __init__(self) -> None:
        self._text = b""

    def wait(self, seconds: float) -> list[str] | None:
        """The lines that come within some seconds; None at the end of stdin."""
        if not select.select([0], [], [], seconds)[0]:
            return []
        chunk = os.read(0, 4096)
        if not chunk:
            return None
        *lines, self._text = (self._text + chunk).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


def say(line: str) -> None:
    """Tell the parent something. It may have ended."""
    try:
        os.write(1, f"{line}\n".encode(errors="replace"))
    except OSError:
        return


def serve(sampler: Sampler) -> bool:
    """Sample until the parent ends. False if it ended without saying so.

    Raises:
        OSError: if the file cannot be written.
    """
    lines, next_s = Lines(), time.perf_counter()
    while True:
        asked = lines.wait(max(0.0, next_s - time.perf_counter()))
        if asked is None:
            return False
        if not asked:
            next_s = max(next_s + INTERVAL_S, time.perf_counter())
            sampler.sample()
        for line in asked:
            if line == BYE:
                return True
            obey(sampler, line)


def obey(sampler: Sampler, line: str) -> None:
    """Do what a line says: `run ID` or `end`."""
    if line.startswith(RUN):
        sampler.run_id = line.removeprefix(RUN)
    sampler.sample()
    if line == END:
        sampler.run_id = ""
        say(OK)


def wait_for_end() -> bool:
    """Wait until the parent ends. False if it ended without saying so."""
    lines = Lines()
    while (asked := lines.wait(60.0)) is not None:
        if BYE in asked:
            return True
    return False


def main() -> None:
    """Serve the parent, and end with it."""
    path, terminal = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None
    try:
        was_told = serve(Sampler(path))
    except OSError as error:
        say(f"{FAILED}{error.strerror or error}")
        was_told = wait_for_end()
    if terminal is not None and not was_told:
        with contextlib.suppress(OSError):  # it was closed
            os.write(terminal, LEAVE_SCREEN)
    # At once: a thread may hang in NVML.
    os._exit(0)


if __name__ == "__main__":
    main()
