"""What was measured and how, for a reader who does not know the tool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mgpubench.analysis.groups import Group
from mgpubench.analysis.row import Row
from mgpubench.analysis.stats import ERROR_RATE, MIN_ROUNDS
from mgpubench.config.types import DEFAULT_OPTIMIZER
from mgpubench.format import UNKNOWN, format_confidence, format_count
from mgpubench.results.schema import RunRecord

MODES = {
    "single": "one device, without any parallelism",
    "dp": "torch.nn.DataParallel: one process copies the model to all devices in every step",
    "ddp": "DistributedDataParallel: one process per device, which exchange their gradients",
    "fsdp": "fully_shard: one process per device, each with a part of the weights",
    "deepspeed": "DeepSpeed ZeRO-1: one process per device, each with a part of the optimizer",
}

MEANINGS = {
    "devices": "GPUs, or replicas on a CPU, that took part.",
    "runs": "Runs that succeeded. Each is one observation.",
    "total samples/s": "Samples of all devices per second: the geometric mean of the runs.",
    "samples/s per device": "The total divided by the number of devices.",
    "efficiency": "The speed-up divided by the number of devices. 100 % is perfect scaling.",
    "speed-up": "The throughput divided by that of single.",
    "ratio": "The throughput divided by that of the named row. Above 1 is faster.",
    "verdict": "Whether the ratio really differs from 1. The method says how it is found.",
}
"""What the columns of a comparison mean, by the beginning of their headers."""

MAX_VALUES = 3


def method_of(rows: Sequence[Row], records: Sequence[RunRecord], margin: float) -> list[str]:
    """Ten lines: the work, the modes, the runs, the figures, and the verdicts."""
    groups = list(dict.fromkeys(row.group for row in rows))
    rounds = len({(record.session_id, record.round) for record in records if record.is_ok})
    confidence = format_confidence(1 - ERROR_RATE)
    return [
        f"Work: forward pass, cross-entropy loss, backward pass and one step of "
        f"{_values(group.optimizer or DEFAULT_OPTIMIZER for group in groups)}. All modes do the "
        "same work with the same seed.",
        f"Model: {_values(map(_model, groups))}. Precision: "
        f"{_values(group.precision for group in groups)}.",
        f"Data: {_values(map(_data, groups))}. Batch: {_values(map(_batch, groups))}.",
        f"Modes: {modes_of(rows)}.",
        f"Run: one launch of fresh processes. It warms up for "
        f"{_values(group.warmup_steps for group in groups)} steps, and then measures "
        f"{_values(group.steps for group in groups)} steps: the window.",
        "Window: nothing else happens in it. Nothing is synchronised, printed or read.",
        "Throughput: the samples of all devices in the window, divided by the window of the "
        "slowest process.",
        f"Rounds: in each of the {format_count(rounds, 'round')} every row ran once, in random "
        "and balanced order. Ratios are made within a round, so that slow changes of the machine "
        "cancel out.",
        f"Interval: {confidence} confidence, from {MIN_ROUNDS} rounds on, by Student's t on the "
        "logarithms of the ratios. With several rows it is wider, so that all verdicts of a "
        "table hold together.",
        f"Verdict: equivalent if the whole interval is within {margin * 100:g} % of 1; else "
        "faster or slower if it does not contain 1; else undecided.",
    ]


def modes_of(rows: Sequence[Row]) -> str:
    """The modes that ran, each with what it is."""
    ran = {row.mode for row in rows}
    return "; ".join(f"{mode} is {what}" for mode, what in MODES.items() if mode in ran)


def meanings_of(headers: Iterable[str]) -> list[tuple[str, str]]:
    """The columns of some tables that need a word, with their meanings."""
    shown = {header.replace("\n", " ") for header in headers}
    return [
        (name, meaning)
        for name, meaning in MEANINGS.items()
        if any(header.startswith(name) for header in shown)
    ]


def _values(values: Iterable[object]) -> str:
    """Values of several groups, each once."""
    known = list(dict.fromkeys(str(UNKNOWN if value in (None, "") else value) for value in values))
    more = f" and {len(known) - MAX_VALUES} more" if len(known) > MAX_VALUES else ""
    return " / ".join(known[:MAX_VALUES]) + more


def _model(group: Group) -> str:
    if group.num_parameters is None:
        return group.model or UNKNOWN
    return f"{group.model or UNKNOWN} with {group.num_parameters:,} parameters"


def _data(group: Group) -> str:
    size = f", {group.image_size} px" if group.image_size else ""
    return f"{group.data or UNKNOWN}{size}"


def _batch(group: Group) -> str:
    if group.batch_per_device and not group.global_batch:
        return f"{group.batch_per_device} per device, on any number of devices"
    if group.global_batch:
        return f"{group.global_batch} on all devices together"
    return UNKNOWN
