"""A user's own model: `package.module:function`."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from torch import nn

from mgpubench.errors import RequestRefused
from mgpubench.launch.switches import kept, turn
from mgpubench.training.models.switches import SWITCHES

_turned: dict[str, dict[str, Any]] = {}
"""The switches that each module has turned while it was imported: its function may need them."""

PARALLEL_PACKAGES = ("torch.nn.parallel", "torch.distributed", "deepspeed.runtime", "fairscale")
"""Where modules come from that spread a model over several devices by themselves."""


def find_function(name: str) -> Callable[[], object]:
    """The function that the user named. Its module may be in the current folder.

    Raises:
        RequestRefused: if the module cannot be imported, or has no such function.
    """
    module_name, _, function_name = name.partition(":")
    module = _import_module(name, module_name)
    function: Callable[[], object] | None = getattr(module, function_name, None)
    if function is None:
        raise _no_function(name, module)
    if not callable(function):
        raise RequestRefused(
            f"--model {name}: {function_name} is not a function, but of type "
            f"{type(function).__name__}",
            "Name a function without arguments that returns a torch.nn.Module.",
        )
    return function


def _import_module(name: str, module_name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # first, as for `python -m`
    try:
        with kept(SWITCHES) as turned:
            module = importlib.import_module(module_name)
    # A user's module may raise anything while it is imported, SystemExit included.
    except BaseException as error:
        raise RequestRefused(
            f"--model {name}: {module_name} cannot be imported: {type(error).__name__}: {error}",
            "It is searched for in the current folder and in the packages of this Python.",
            "".join(traceback.format_exception(error)),
        ) from error
    _turned.setdefault(module_name, turned)
    return module


def _no_function(name: str, module: ModuleType) -> RequestRefused:
    """Say that the module has no such function, and suggest a similar name."""
    module_name, _, function_name = name.partition(":")
    near = difflib.get_close_matches(function_name, dir(module), n=1)
    return RequestRefused(
        f"--model {name}: {module_name} has no function {function_name}",
        f"Did you mean {module_name}:{near[0]}?" if near else f"The module is {module.__file__}.",
    )


def own_model(name: str) -> nn.Module:
    """What the user's function returns.

    What the function and its module change in the whole process is set back.

    Raises:
        RequestRefused: if there is no such function, or it returns no module or a compiled one.
        Exception: anything that the function raises.
    """
    function = find_function(name)
    with kept(SWITCHES):
        turn(SWITCHES, _turned[name.partition(":")[0]])
        model = function()
    if not isinstance(model, nn.Module):
        raise RequestRefused(
            f"--model {name} returns an object of type {type(model).__name__}",
            "The function must return a torch.nn.Module.",
        )
    _check_plain(name, model)
    return model


def _check_plain(name: str, model: nn.Module) -> None:
    """Refuse what would train in another way than the row says."""
    if wrapper := next(filter(_is_parallel, _with_hidden(model)), None):
        raise RequestRefused(
            f"--model {name} has a module of type {type(wrapper).__name__} in it, which uses "
            "several devices by itself",
            "Return the model without it: mgpubench wraps it as each mode needs.",
        )
    if any(_is_compiled(module) for module in model.modules()):
        raise RequestRefused(
            f"--model {name} returns a module that is already compiled",
            "Return it uncompiled, and add --compile: that keeps compiling out of the window.",
        )


def _with_hidden(model: nn.Module) -> Iterator[nn.Module]:
    """All modules of a model, also those in plain lists and dictionaries."""
    seen: set[int] = set()
    pending: list[object] = [model]
    while pending:
        found = pending.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, nn.Module):
            yield found
            pending += vars(found).values()
        elif isinstance(found, dict):
            pending += found.values()
        elif isinstance(found, list | tuple | set):
            pending += found


def _is_parallel(module: nn.Module) -> bool:
    """True for DataParallel, DistributedDataParallel, FSDP and whatever is derived from them."""
    places = [kind.__module__ for kind in type(module).__mro__]
    return any(
        place.startswith(PARALLEL_PACKAGES) and "checkpoint_wrapper" not in place
        for place in places
    )


def _is_compiled(module: nn.Module) -> bool:
    """True for the result of torch.compile or Module.compile."""
    by_function = type(module).__module__.startswith("torch._dynamo")
    return by_function or getattr(module, "_compiled_call_impl", None) is not None
