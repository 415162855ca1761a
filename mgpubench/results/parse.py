"""From one line of runs.csv to a `RunRecord`, or to the reason why not."""

from __future__ import annotations

import re
from typing import get_args

from mgpubench.results.identities import contradictions
from mgpubench.results.row_format import (
    RowFault,
    check_mode,
    check_not_negative,
    check_ratio,
    check_throughput,
    make_format,
    number_columns,
)
from mgpubench.results.schema import RunRecord, Status

STATUSES = get_args(Status)


def _check(record: RunRecord) -> None:
    """Refuse a row that contradicts itself, before a wrong figure gets into a table."""
    if record.status not in STATUSES:
        raise RowFault(f"status is {record.status!r}, which is not one of {', '.join(STATUSES)}")
    if record.num_devices < 1:
        raise RowFault(f"num_devices is {record.num_devices}")
    check_not_negative(record, _NOT_NEGATIVE)
    check_mode(record.mode, record.effective_mode)
    for contradiction in contradictions(record):
        raise RowFault(contradiction)
    if record.is_ok:
        _check_throughput(record)
        _check_samples(record)


def _check_samples(record: RunRecord) -> None:
    """The samples are those of all steps of the window."""
    if record.samples is None or record.global_batch is None or record.steps is None:
        return
    if record.samples != record.global_batch * record.steps:
        raise RowFault(
            f"samples is {record.samples}, and global_batch x steps is {record.global_batch} x "
            f"{record.steps}"
        )


def _check_throughput(record: RunRecord) -> None:
    if record.throughput_samples_per_s is None:
        raise RowFault("status is ok, and throughput_samples_per_s is empty")
    check_throughput(record.throughput_samples_per_s)
    if record.window_s == 0:
        raise RowFault(f"samples / window_s is {record.samples} / {record.window_s!r}")
    check_ratio(record, "throughput_samples_per_s", "samples", "window_s")
    check_ratio(
        record, "throughput_per_device_samples_per_s", "throughput_samples_per_s", "num_devices"
    )


def _peaks(cell: str) -> str:
    if cell and not re.fullmatch("[0-9]+(;[0-9]+)*", cell):
        raise ValueError("not whole numbers joined by ';'")
    return cell


def _shares(cell: str) -> str:
    if cell and not re.fullmatch(r"([01](\.[0-9]+)?)?(;([01](\.[0-9]+)?)?)*", cell):
        raise ValueError("not shares of one joined by ';'")
    return cell


_NOT_NEGATIVE = [column for column in number_columns(RunRecord) if column != "step_time_change"]

RUN_ROWS = make_format(
    RunRecord,
    _check,
    also_required=("throughput_samples_per_s",),
    special={
        "peak_memory_bytes": _peaks,
        "peak_reserved_bytes": _peaks,
        "gpu_utilization_per_device": _shares,
    },
)
"""How the rows of runs.csv are read."""
