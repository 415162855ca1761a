"""The state of an optimizer by the names of the parameters.

Torch numbers them, and so would load the momentum of one parameter for another if their order ever
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count, islice
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from mgpubench.errors import RequestRefused
from mgpubench.training.technique import itself

NamedParameters = Iterable[tuple[str, nn.Parameter]]

HOW = frozenset({"params", "param_names", "foreach", "fused", "capturable", "differentiable"})
"""Settings of a group that say how an optimizer computes, and not what: they are not saved."""


def optimizer_by_name(
    optimizer: Optimizer,
    named_parameters: NamedParameters,
    to_save: Callable[[Tensor], Tensor] = itself,
) -> dict[str, Any]:
    """The state and the settings of an optimizer, by name. `to_save` changes each tensor."""
    names = _names(named_parameters)
    numbered = optimizer.state_dict()
    state, groups = {}, []
    for own, saved in zip(optimizer.param_groups, numbered["param_groups"], strict=True):
        in_group = [names[id(parameter)] for parameter in own["params"]]
        settings = {name: value for name, value in saved.items() if name not in HOW}
        groups.append({**settings, "params": in_group})
        for number, name in zip(saved["params"], in_group, strict=True):
            if number in numbered["state"]:
                values = numbered["state"][number]
                state[name] = {
                    key: to_save(value) if isinstance(value, Tensor) else value
                    for key, value in values.items()
                }
    return {"class": _class_name(optimizer), "state": state, "groups": groups}


def load_optimizer_by_name(
    optimizer: Optimizer,
    saved: Mapping[str, Any],
    named_parameters: NamedParameters,
    part_of: Callable[[Tensor, Tensor], Tensor] = itself,
) -> None:
    """Give an optimizer the state and the settings that `optimizer_by_name` saved, as copies.

    `part_of` gives the part of a tensor that a sharded parameter keeps.

    Raises:
        RequestRefused: if they are those of another optimizer, or of other parameters.
    """
    names = _names(named_parameters)
    if saved["class"] != _class_name(optimizer):
        raise _refusal(f"is that of {saved['class']}, and this is {_class_name(optimizer)}")
    saved_groups = {frozenset(group["params"]): group for group in saved["groups"]}
    _check_names(set(names.values()), {*saved["state"]}.union(*saved_groups))
    state, groups, numbers = {}, [], count()
    for group in optimizer.param_groups:
        in_group = {names[id(parameter)]: parameter for parameter in group["params"]}
        if (found := saved_groups.get(frozenset(in_group))) is None:
            raise _refusal("has its parameters in other groups")
        settings = {name: found[name] for name in found.keys() & group.keys() - HOW}
        # As state_dict numbers them. ZeRO has none on a rank that did not gather it.
        numbered = dict(zip(islice(numbers, len(in_group)), in_group.items(), strict=True))
        groups.append({**group, **settings, "params": list(numbered)})
        for number, (name, parameter) in numbered.items():
            if name in saved["state"]:
                state[number] = _copied(saved["state"][name], name, parameter, part_of)
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _names(named_parameters: NamedParameters) -> dict[int, str]:
    return {id(parameter): name for name, parameter in named_parameters}


def _class_name(optimizer: Optimizer) -> str:
    # ZeroRedundancyOptimizer is around the optimizer of its own part.
    return type(getattr(optimizer, "optim", optimizer)).__name__


def _check_names(own: set[str], saved: set[str]) -> None:
    if saved - own:
        raise _refusal(f"has parameters that the model lacks: {', '.join(sorted(saved - own))}")


def _copied(
    values: Mapping[str, Any],
    name: str,
    parameter: nn.Parameter,
    part_of: Callable[[Tensor, Tensor], Tensor],
) -> dict[str, Any]:
    """The state of one parameter. The tensors are still mapped from the file, so copy them."""
    copies = {}
    for key, value in values.items():
        if isinstance(value, Tensor):
            if value.dim() and value.shape != parameter.shape:
                raise _refusal(f"has another shape for {key} of {name}")
            # A count of steps stays on the CPU, and whole.
            value = (
                part_of(value, parameter).to(parameter.device, copy=True)
                if value.dim()
                else value.clone()
            )
        copies[key] = value
    return copies


def _refusal(what: str) -> RequestRefused:
    return RequestRefused(
        f"the optimizer in the checkpoint {what}",
        "Use the --optimizer and the --model that it was trained with.",
    )
