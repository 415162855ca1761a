"""The page of `report`, and the pictures of `compare --plot`, over many runs and steps."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from pathlib import Path

from sides import report

from mgpubench.results.csv_format import write_rows
from mgpubench.results.schema import RunRecord, StepRecord

NUM_RUNS, NUM_STEPS = 10_000, 1_000_000
STEPS = NUM_STEPS // NUM_RUNS
RATES = {("single", 1): 900.0, ("dp", 2): 1500.0, ("ddp", 2): 1700.0, ("ddp", 4): 3300.0}

PAGE_S, PICTURES_S = 15, 10
MAX_BYTES = 5 * 2**20
MAX_MEMORY_BYTES = 1.5 * 2**30


def pages() -> bool:
    """Time, size and memory of both commands over one session."""
    with tempfile.TemporaryDirectory() as folder:
        session = Path(folder) / "20260101T000000Z-abcdef"
        session.mkdir()
        write_session(session)
        page, picture = Path(folder) / "report.html", Path(folder) / "all.svg"
        page_s = seconds("report", session, "--out", page)
        picture_s = seconds("compare", session, "--plot", picture)
        size = page.stat().st_size
    peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    of_all = f"{NUM_RUNS:,} runs and {NUM_STEPS:,} steps"
    return all(
        [
            report(f"report of {of_all}", f"{page_s:.1f} s", f"at most {PAGE_S}", page_s <= PAGE_S),
            report("its size", f"{size / 2**20:.1f} MB", "at most 5", size <= MAX_BYTES),
            report("compare --plot", f"{picture_s:.1f} s", "at most 10", picture_s <= PICTURES_S),
            report(
                "memory of both",
                f"{peak_bytes / 2**30:.2f} GiB",
                "at most 1.5",
                peak_bytes <= MAX_MEMORY_BYTES,
            ),
        ]
    )


def seconds(*arguments: object) -> float:
    """How long a command takes."""
    began_s = time.perf_counter()
    command = [Path(sys.executable).parent / "mgpubench", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began_s


def write_session(folder: Path) -> None:
    """A session of so many runs, each with its steps, that only some noise tells apart."""
    draw = random.Random(0)
    records = [make_run(number, draw) for number in range(NUM_RUNS)]
    write_table(folder / "runs.csv", RunRecord, map(astuple, records))
    steps = (astuple(step) for record in records for step in make_steps(record, draw))
    write_table(folder / "steps.csv", StepRecord, steps)


def write_table(path: Path, kind: type, rows: Iterator[Sequence[object]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        write_rows(file, [[field.name for field in fields(kind)], *rows])


def make_run(number: int, draw: random.Random) -> RunRecord:
    (mode, devices), rate = list(RATES.items())[number % len(RATES)]
    rate *= draw.lognormvariate(0, 0.02)
    batch = 64 * devices
    return RunRecord(
        schema_version=1,
        run_id=f"run-{number}",
        session_id="20260101T000000Z-abcdef",
        round=number // len(RATES) + 1,
        position=number + 1,
        started_at="2026-01-01T00:00:00+00:00",
        status="ok",
        mode=mode,
        effective_mode=mode,
        device_type="cuda",
        num_devices=devices,
        model="resnet50",
        data="synthetic",
        image_size=224,
        precision="tf32",
        scaling="weak",
        batch_per_device=64,
        global_batch=batch,
        steps=STEPS,
        samples=batch * STEPS,
        window_s=batch * STEPS / rate,
        throughput_samples_per_s=rate,
        throughput_per_device_samples_per_s=rate / devices,
        step_time_median_s=batch / rate,
        device_names=f"{devices}x NVIDIA H200",
        findings="stalls" if draw.random() < 0.1 else "",
    )


def make_steps(record: RunRecord, draw: random.Random) -> Iterator[StepRecord]:
    for step in range(1, STEPS + 1):
        yield StepRecord(
            run_id=record.run_id,
            rank=0,
            step=step,
            phase="measured",
            step_time_s=(record.step_time_median_s or 0.0) * draw.lognormvariate(0, 0.05),
            data_wait_s=0.0001,
            samples=record.global_batch or 0,
        )
