"""Machine, versions and environment of a session, each fact as a name and a text.

What runs.csv knows comes from there. session.json adds the rest, if it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mgpubench.format import format_size, plain, shorten
from mgpubench.report.machine_report import dotted_cudnn
from mgpubench.results.saved_document import list_at, look_up, names_at
from mgpubench.results.schema import RunRecord

MAX_CHARACTERS = 300

Facts = dict[str, str]
Document = Mapping[str, Any]
Fact = Callable[[Sequence[RunRecord], Document], str]


def facts_of(records: Sequence[RunRecord], document: Document) -> Facts:
    """What is known about one session, from its runs and its session.json."""
    found = ((name, fact(records, document)) for name, fact in _FACTS.items())
    return {name: shorten(plain(text), MAX_CHARACTERS) for name, text in found if text}


def alike(sessions: Sequence[Facts]) -> Facts:
    """The facts that all sessions have in common."""
    first, *others = sessions or [{}]
    return {
        name: text
        for name, text in first.items()
        if all(facts.get(name) == text for facts in others)
    }


def differing(sessions: Sequence[Facts]) -> list[str]:
    """The names of the facts in which sessions differ, or which some of them lack."""
    common = alike(sessions)
    known = {name for facts in sessions for name in facts}
    return [name for name in _FACTS if name in known and name not in common]


def _column(name: str) -> Fact:
    """A column of runs.csv. Runs of one session may differ in some of them."""
    return lambda records, document: _joined(
        dict.fromkeys(getattr(record, name) for record in records)
    )


def _place(place: str) -> Fact:
    """A number or a text in session.json."""
    return lambda records, document: _joined([look_up(document, place)])


def _joined(values: Iterable[object]) -> str:
    """The known ones of some values, as one text."""
    texts = {True: "yes", False: "no"}
    return ", ".join(
        texts[value] if isinstance(value, bool) else str(value)
        for value in values
        if value not in (None, "")
    )


def _memory(records: Sequence[RunRecord], document: Document) -> str:
    return _size(look_up(document, "system.memory_bytes"))


def _size(num_bytes: object) -> str:
    return format_size(num_bytes) if isinstance(num_bytes, int) else ""


def _gpus(records: Sequence[RunRecord], document: Document) -> str:
    """Equal GPUs once, with their number: `8 x NVIDIA H200, 139.8 GB`."""
    counts: dict[str, int] = {}
    for gpu in list_at(document, "machine.gpus"):
        parts = (look_up(gpu, "name"), _size(look_up(gpu, "memory_bytes")))
        text = ", ".join(str(part) for part in parts if part)
        counts[text] = counts.get(text, 0) + 1
    return "; ".join(f"{count} x {text}" for text, count in counts.items() if text)


def _cudnn(records: Sequence[RunRecord], document: Document) -> str:
    version = look_up(document, "torch.cudnn_version")
    return dotted_cudnn(version) if isinstance(version, int) else ""


def _variables(records: Sequence[RunRecord], document: Document) -> str:
    variables = names_at(document, "environment")
    return ", ".join(f"{name}={text}" for name, text in variables.items())


_FACTS: dict[str, Fact] = {
    "devices": _column("device_names"),
    "GPUs": _gpus,
    "CPU": _place("system.cpu_model"),
    "cores": _place("system.cores"),
    "usable cores": _place("system.usable_cores"),
    "CPU governor": _place("system.governor"),
    "RAM": _memory,
    "virtual machine": _place("system.is_virtual"),
    "operating system": _place("system.os"),
    "driver": _column("driver_version"),
    "torch": _column("torch_version"),
    "torchvision": _place("machine.torchvision_version"),
    "CUDA": _column("cuda_version"),
    "cuDNN": _cudnn,
    "NCCL": _column("nccl_version"),
    "backend": _column("backend"),
    "Python": _column("python_version"),
    "mgpubench": _column("mgpubench_version"),
    "its commit": _place("mgpubench_commit"),
    "its method": _column("method_version"),
    "threads per process": _column("threads_per_rank"),
    "seed": _column("seed"),
    "environment variables": _variables,
    "CUDA_VISIBLE_DEVICES": _place("machine.cuda_visible_devices"),
    "OMP_NUM_THREADS": _place("machine.omp_num_threads"),
    "machine id": _column("machine"),
}
"""How each fact is found, in the order in which they are shown."""
