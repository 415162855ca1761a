"""What telemetry costs: the sampler's own time, and reading what it wrote in 8 hours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from sides import compare_rates, interval_of, report
from training import made_by

from mgpubench.analysis.gpu_metrics import (
    Window,
    energy_j,
    temperature_max_c,
    throttle_reasons,
    utilization,
)
from mgpubench.results.csv_format import append_records
from mgpubench.results.telemetry import (
    MACHINE,
    TELEMETRY_COLUMNS,
    TelemetryRecord,
    by_device,
    read_telemetry,
)

ROOT = Path(__file__).parents[2]
GPUS = 8
SAMPLED_S = 30
HOURS = 8


def sampler() -> bool:
    """CPU time of the sampler with 8 pretended GPUs, without its start."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "telemetry.csv"
        environment = {
            "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'fake_nvml'}",
            "FAKE_NVML": json.dumps({"gpus": GPUS}),
        }
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mgpubench.machine.sampler", str(path)],
            stdin=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        time.sleep(SAMPLED_S)
        process.communicate(b"bye\n", timeout=10)
        first, *_, last = by_device(read_telemetry(path))[MACHINE]
    used_s = (last.sampler_cpu_s or 0.0) - (first.sampler_cpu_s or 0.0)
    share = used_s / (last.clock_s - first.clock_s)
    figure = f"{share:.3%} of a core over {SAMPLED_S} s"
    return report(f"sampler with {GPUS} GPUs", figure, "at most 0.5 %", share <= 0.005)


def disturbance() -> bool:
    """The throughput of a run beside the sampler, against one without."""
    work = ("--mode", "ddp", "--device", "cpu", "--gpus", "2", "--model", "tiny-cnn")
    length = ("--steps", "1000", "--warmup-steps", "50", "--rounds", "1")

    def rate(*options: str) -> float:
        new = made_by(folder, "run", *work, *length, *options)
        return float(pd.read_csv(new / "runs.csv")["throughput_samples_per_s"].iloc[-1])

    with tempfile.TemporaryDirectory() as out:
        folder = Path(out)
        result = compare_rates(rate, lambda: rate("--no-telemetry"), 12)
    figure = f"{result.ratio:.3f} x the samples/s ({interval_of(result)})"
    low, high = result.interval or (0.0, 0.0)
    return report("a run beside the sampler", figure, "1 in the interval", low <= 1 <= high)


def reading() -> bool:
    """Reading and summarising telemetry.csv of 8 hours on 8 GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "telemetry.csv"
        path.write_text(",".join(TELEMETRY_COLUMNS) + "\n")
        append_records(path, TELEMETRY_COLUMNS, _rows())
        began_s = time.perf_counter()
        traces = by_device(read_telemetry(path))
        gpus = [trace for device, trace in traces.items() if device != MACHINE]
        window = Window(10.5, HOURS * 3600 - 10.5)
        for trace in gpus:
            energy_j(trace, window)
            utilization(trace, window)
            temperature_max_c(trace, window)
        throttle_reasons(gpus, window)
        took_s = time.perf_counter() - began_s
    figure = f"{took_s:.2f} s for {sum(map(len, traces.values()))} rows"
    return report("telemetry.csv of 8 h and 8 GPUs", figure, "below 2 s", took_s < 2)


def _rows() -> Iterator[TelemetryRecord]:
    for second in range(HOURS * 3600):
        when: Any = {"sampled_at": "2026-12-01T06:04:05.490+00:00", "clock_s": float(second)}
        yield TelemetryRecord(
            **when,
            device=MACHINE,
            utilization=0.5,
            memory_used_bytes=9312030720,
            memory_total_bytes=25276059648,
            own_cpu_share=0.4,
            own_memory_bytes=738238464,
            own_processes=10,
            sampler_cpu_s=0.001 * second,
        )
        for gpu in range(GPUS):
            yield TelemetryRecord(
                **when,
                run_id="20261201T061045Z-79aeec-001",
                device=f"GPU-5f4e6dd2-6c83-4a4e-b7f5-00000000000{gpu}",
                utilization=0.98,
                memory_used_bytes=42949779257,
                memory_total_bytes=85899345920,
                temperature_c=64,
                power_w=612.345,
                energy_j=612.345 * second,
                sm_clock_mhz=1755,
                memory_clock_mhz=2619,
                clock_reasons="power-limit",
            )
