"""Machine, versions and environment of a session, each fact as a name and a text.

What runs.csv knows comes from there. session.json adds the rest, if it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mgpubench.format import format_count, format_size, plain, shorten
from mgpubench.results.saved_document import list_at, look_up, names_at
from mgpubench.results.schema import RunRecord

MAX_CHARACTERS = 200

Facts = dict[str, str]

_COLUMNS = {
    "devices": "device_names",
    "machine id": "machine",
    "mgpubench": "mgpubench_version",
    "torch": "torch_version",
    "CUDA": "cuda_version",
    "NCCL": "nccl_version",
    "driver": "driver_version",
    "Python": "python_version",
    "backend": "backend",
    "threads per process": "threads_per_rank",
    "seed": "seed",
    "method version": "method_version",
}
"""Facts that are columns of runs.csv. Runs of one session may differ in some of them."""

_PLACES = {
    "commit of mgpubench": "mgpubench_commit",
    "torchvision": "machine.torchvision_version",
    "cuDNN": "torch.cudnn_version",
    "CPU": "system.cpu_model",
    "cores": "system.cores",
    "usable cores": "system.usable_cores",
    "CPU governor": "system.governor",
    "virtual machine": "system.is_virtual",
    "operating system": "system.os",
    "CUDA_VISIBLE_DEVICES": "machine.cuda_visible_devices",
    "OMP_NUM_THREADS": "machine.omp_num_threads",
}
"""Facts that are a number or a text in session.json."""


def facts_of(records: Sequence[RunRecord], document: Mapping[str, Any]) -> Facts:
    """What is known about one session, from its runs and its session.json."""
    found = [*_from_rows(records), *_from_document(document)]
    return {name: shorten(plain(text), MAX_CHARACTERS) for name, text in found if text}


def alike(sessions: Sequence[Facts]) -> Facts:
    """The facts that all sessions have in common."""
    first = sessions[0] if sessions else {}
    return {
        name: text
        for name, text in first.items()
        if all(facts.get(name) == text for facts in sessions)
    }


def differing(sessions: Sequence[Facts]) -> list[str]:
    """The names of the facts in which sessions differ, or which some of them lack."""
    common = alike(sessions)
    return [name for name in dict.fromkeys(n for facts in sessions for n in facts)
            if name not in common]


def _from_rows(records: Sequence[RunRecord]) -> Iterator[tuple[str, str]]:
    for name, column in _COLUMNS.items():
        values = dict.fromkeys(getattr(record, column) for record in records)
        yield name, _joined(values)


def _from_document(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, place in _PLACES.items():
        yield name, _joined([look_up(document, place)])
    yield "RAM", _size(look_up(document, "system.memory_bytes"))
    yield "GPUs", _counted(map(_gpu, list_at(document, "machine.gpus")))
    variables = names_at(document, "environment")
    yield "environment variables", ", ".join(f"{name}={text}" for name, text in variables.items())


def _joined(values: Iterable[object]) -> str:
    """The known ones of some values, as one text."""
    texts = {True: "yes", False: "no"}
    return ", ".join(
        texts[value] if isinstance(value, bool) else str(value)
        for value in values
        if value not in (None, "")
    )


def _size(num_bytes: object) -> str:
    return format_size(num_bytes) if isinstance(num_bytes, int) else ""


def _gpu(gpu: object) -> str:
    name, memory = look_up(gpu, "name"), _size(look_up(gpu, "memory_bytes"))
    return ", ".join(str(part) for part in (name, memory) if part)


def _counted(texts: Iterable[str]) -> str:
    """Equal texts once, with their number: `8 x NVIDIA H200, 139.8 GB`."""
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    return "; ".join(f"{count} x {text}" for text, count in counts.items() if text)
