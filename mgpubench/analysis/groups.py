"""Which runs belong together: groups of equal work."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import DEFAULT_OPTIMIZER, IMAGE_FOLDER
from mgpubench.results.schema import MACHINES_APART, RunRecord

_DEVICE_COUNT = re.compile(r"(^|[+;,]\s*)\d+x ")

_PYTHON_MINOR = re.compile(r"(\d+\.\d+)[^t]*(t?)$")
"""`3.13.1t` is a free-threaded Python 3.13."""

NAMELESS_CPUS = ("", "CPU")


FIRST_REPLICA = "first replica"
"""In place of true: the others have the default memory format."""


def loses_channels_last(run: RunRecord | RunConfig) -> bool:
    """True for DataParallel on several GPUs: it broadcasts the weights as one flat tensor, from
    which the other replicas get them in the default memory format."""
    is_spread = run.mode == "dp" and run.device_type == "cuda" and run.num_devices > 1
    return bool(run.channels_last) and is_spread


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """What runs must have in common to be equal work. Unknown is None or empty."""

    machine: str
    device_models: str
    """`device_names` without the counts."""
    device_type: str
    model: str
    num_parameters: int | None
    data: str
    image_size: int | None
    precision: str
    optimizer: str
    accumulate: int | None
    """Micro-batches of a step."""
    channels_last: bool | str | None
    """A text where only a part of the devices has it."""
    compiled: bool | None
    workers_per_device: int | None
    """None unless images are loaded."""
    scaling: str
    batch_per_device: int | None
    """None in strong scaling, where it depends on the number of devices."""
    global_batch: int | None
    """None in weak scaling, for the same reason."""
    warmup_steps: int | None
    steps: int | None
    torch_version: str
    cuda_version: str
    nccl_version: str
    driver_version: str
    python: str
    """Minor version, with a `t` if it is free-threaded."""
    environment: str
    model_digest: str
    dataset_digest: str
    method_version: int | None
    variants: str = ""
    """The variants of the sessions, with the fields above that they vary; these are then
    unknown."""


GROUP_KEY = tuple(group_field.name for group_field in fields(Group))

_SOURCE = attrgetter(
    *("machine", "device_names", "device_type", "model", "num_parameters", "data", "image_size"),
    *("precision", "channels_last", "compiled", "workers_per_device", "scaling"),
    *("batch_per_device", "global_batch", "warmup_steps", "steps", "torch_version"),
    *("cuda_version", "nccl_version", "driver_version", "python_version", "environment"),
    *("model_digest", "dataset_digest", "method_version", "optimizer", "accumulate"),
)
"""The columns that decide the group of a run."""


def hides_gpus(groups: Iterable[Group]) -> bool:
    """True if groups differ in the machine, and that may be one of which a part was visible.

    A machine is known by its GPUs, so without some of them it is another one.
    """
    found = [group for group in groups if group.device_type == "cuda"]
    models = {(group.device_models, group.driver_version) for group in found}
    return len({group.machine for group in found}) > 1 and len(models) < len(found)


def group_records(records: Sequence[RunRecord]) -> dict[Group, list[RunRecord]]:
    """Runs by their group of equal work."""
    groups: defaultdict[Group, list[RunRecord]] = defaultdict(list)
    known: dict[object, Group] = {}
    varied = _varied(records)
    for record in records:
        sets = varied.get(record.session_id) if record.variant else None
        # Many runs have the same group, and making one takes longer than looking it up.
        key = (_SOURCE(record), _nameless(record), loses_channels_last(record), sets)
        if key not in known:
            known[key] = _without(group_of(record), sets) if sets else group_of(record)
        groups[known[key]].append(record)
    return groups


def group_of(record: RunRecord) -> Group:
    """The work of a run, as far as it must be equal in a fair comparison."""
    batch_per_device, global_batch = _fixed_batch(record)
    loads_images = record.data.startswith(IMAGE_FOLDER)
    derived: dict[str, Any] = {
        "machine": record.machine + _nameless(record),
        "device_models": device_models(record.device_names),
        "workers_per_device": record.workers_per_device if loads_images else None,
        "batch_per_device": batch_per_device,
        "global_batch": global_batch,
        "python": python_minor(record.python_version),
        "variants": "",
        "channels_last": FIRST_REPLICA if loses_channels_last(record) else record.channels_last,
        "optimizer": record.optimizer or DEFAULT_OPTIMIZER,
        "accumulate": record.accumulate or 1,
    }
    plain = {name: getattr(record, name) for name in GROUP_KEY if name not in derived}
    return Group(**plain, **derived)


def _fixed_batch(record: RunRecord) -> tuple[int | None, int | None]:
    """The batch per device and the global batch, without the one that the scaling varies.

    Both if the fixed one is unknown: the other one then identifies the work.
    """
    if record.scaling == "weak" and record.batch_per_device is not None:
        return record.batch_per_device, None
    if record.scaling == "strong" and record.global_batch is not None:
        return None, record.global_batch
    return record.batch_per_device, record.global_batch


def device_models(device_names: str) -> str:
    """The models of devices without their counts; those of equal machines once."""
    machines = device_names.split(MACHINES_APART)
    return MACHINES_APART.join(dict.fromkeys(_DEVICE_COUNT.sub(r"\1", each) for each in machines))


def python_minor(version: str) -> str:
    """The minor version of Python, with a `t` if it is free-threaded."""
    match = _PYTHON_MINOR.match(version)
    return "".join(match.groups()) if match else version


def _nameless(record: RunRecord) -> str:
    """What keeps the sessions of a CPU without a name apart: it may be any CPU."""
    models = device_models(record.device_names)
    if record.device_type != "cpu" or models not in NAMELESS_CPUS or not record.session_id:
        return ""
    return f" (session {record.session_id})"


Sets = tuple[str, tuple[str, ...]]
"""A text that identifies the variants of a session, and the fields that they vary."""


def _varied(records: Iterable[RunRecord]) -> dict[str, Sets]:
    """What the variants of each session set that would otherwise keep them in different groups."""
    first: defaultdict[str, dict[str, RunRecord]] = defaultdict(dict)
    for record in records:
        if record.variant:
            # Runs of the same mode, since GPUs of different models make other groups of the modes.
            known = first[record.session_id].setdefault(record.variant, record)
            if _place(record) < _place(known):
                first[record.session_id][record.variant] = record
    return {
        session: _sets({variant: group_of(run) for variant, run in runs.items()})
        for session, runs in first.items()
    }


def _place(run: RunRecord) -> tuple[object, ...]:
    """An order of the runs of a variant that does not depend on that of the file."""
    return run.mode, run.num_devices, run.position or 0, run.sitting or 1


def _sets(groups: Mapping[str, Group]) -> Sets:
    names = tuple(
        name for name in GROUP_KEY if len({getattr(group, name) for group in groups.values()}) > 1
    )
    texts = [
        f"{variant} ({', '.join(f'{name}={getattr(group, name)}' for name in names)})"
        if names
        else variant
        for variant, group in sorted(groups.items())
    ]
    return " | ".join(texts), names


def _without(group: Group, sets: Sets) -> Group:
    text, names = sets
    unknown = {name: "" if isinstance(getattr(group, name), str) else None for name in names}
    changes: dict[str, Any] = {**unknown, "variants": text}
    return replace(group, **changes)
