"""Copying a state dict into a model, with every name and shape checked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch import Tensor, nn

from mgpubench.errors import RequestRefused
from mgpubench.training.technique import itself

MOST_NAMES = 5
"""How many names of a kind an error names; all are in its details."""


def load_into(
    model: nn.Module,
    state: Mapping[str, Any],
    *,
    source: object = "the checkpoint",
    may_be_new: Collection[str] = (),
    part_of: Callable[[Tensor, Tensor], Tensor] = itself,
) -> tuple[str, ...]:
    """Copy a state dict into a model. Every name and shape must fit.

    Tensors in `may_be_new` may be missing in `state`, or have another shape there. They stay as
    they are in the model, and their names are returned. An error names `source`. `part_of` gives
    the part of a tensor that a sharded model keeps.

    Raises:
        RequestRefused: if something does not fit. The model is then unchanged.
    """
    own = model.state_dict()
    missing = [name for name in own if name not in state]
    shaped = [n for n in own if n in state and shape_of(state[n]) != shape_of(own[n])]
    new = tuple(name for name in (*missing, *shaped) if name in may_be_new)
    faults = {
        "missing": [name for name in missing if name not in new],
        "unexpected": [name for name in state if name not in own],
        "of another shape": [
            f"{name} ({shape_of(state[name])} instead of {shape_of(own[name])})"
            for name in shaped
            if name not in new
        ],
    }
    _refuse(faults, source)
    fitting = OrderedDict(
        (name, part_of(state[name], own[name])) for name in state if name not in new
    )
    vars(fitting).update(getattr(state, "__dict__", {}))  # versions of the modules' formats
    model.load_state_dict(fitting, strict=not new)
    return new


def _refuse(faults: Mapping[str, list[str]], source: object) -> None:
    if any(faults.values()):
        raise RequestRefused(
            f"{source} does not fit the model: {_list(faults, MOST_NAMES)}",
            "It is of another --model, or was trained on other classes.",
            _list(faults, None),
        )


def _list(faults: Mapping[str, list[str]], most: int | None) -> str:
    parts = []
    for what, names in faults.items():
        if names:
            more = f" and {len(names) - most} more" if most and len(names) > most else ""
            parts.append(f"{what}: {', '.join(names[:most])}{more}")
    return "; ".join(parts)


def shape_of(value: object) -> str:
    """`64x3x7x7`; a single number has none."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    return "x".join(map(str, value.shape)) or "one number"
