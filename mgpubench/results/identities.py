"""What the cells of a row must have in common. A row that contradicts itself is never used."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from mgpubench.config.types import MULTI_PROCESS_MODES
from mgpubench.results.row_format import TOLERANCE
from mgpubench.results.schema import RunRecord

ASCENDING = ("step_time_median_s", "step_time_p95_s", "step_time_p99_s", "step_time_max_s")
PARTS = (
    ("step_time_max_s", "window_s"),
    ("data_wait_s", "window_s"),
    ("skipped_steps", "steps"),
    ("skipped_images", "dataset_samples"),
)
"""Figures of which the first is a part of the second."""


def contradictions(record: RunRecord) -> Iterator[str]:
    """Everything in a row that cannot be true at once. What is unknown contradicts nothing."""
    yield from _batches(record)
    yield from _processes(record)
    yield from _sizes(record)
    peaks = len(record.peak_memory_bytes.split(";"))
    if peaks > record.num_devices:
        yield f"peak_memory_bytes has {peaks} values, and num_devices is {record.num_devices}"
    if (record.others_cpu_share or 0.0) > 1 + TOLERANCE:
        yield f"others_cpu_share is {record.others_cpu_share!r}, and a share is at most 1"


def _batches(record: RunRecord) -> Iterator[str]:
    devices, per_device = record.num_devices, record.batch_per_device
    if per_device is None:
        return
    if record.global_batch is not None and record.global_batch != devices * per_device:
        yield (
            f"global_batch is {record.global_batch}, and num_devices x batch_per_device is "
            f"{devices} x {per_device}"
        )
    if record.accumulate and per_device % record.accumulate:
        yield f"batch_per_device is {per_device}, and accumulate {record.accumulate}"


def _processes(record: RunRecord) -> Iterator[str]:
    mode, devices = record.mode, record.num_devices
    expected = devices if mode in MULTI_PROCESS_MODES else 1
    if record.world_size is not None and record.world_size != expected:
        yield f"world_size is {record.world_size}, and {mode} on {devices} devices has {expected}"
    if devices > 1 and "single" in (mode, record.effective_mode):
        yield f"mode is {mode!r}, and num_devices is {devices}"
    if devices > 1 and record.effective_mode == "passthrough":
        yield f"effective_mode is 'passthrough', and num_devices is {devices}"
    if record.effective_mode == "cpu-replicas" and record.device_type not in ("cpu", ""):
        yield f"effective_mode is 'cpu-replicas', and device_type is {record.device_type!r}"


def _sizes(record: RunRecord) -> Iterator[str]:
    known = [(name, value) for name in ASCENDING if (value := getattr(record, name)) is not None]
    whole = [
        ((part, smaller), (all_of_it, larger))
        for part, all_of_it in PARTS
        if (smaller := getattr(record, part)) is not None
        and (larger := getattr(record, all_of_it)) is not None
    ]
    for (small, smaller), (large, larger) in (*pairwise(known), *whole):
        if smaller > larger * (1 + TOLERANCE):
            yield f"{small} is {smaller!r}, and {large} is {larger!r}"
