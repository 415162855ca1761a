"""Has a model of the user's own changed? Its name and its size do not tell."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Iterator
from types import CodeType

from torch import nn

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def digest_of(model: nn.Module) -> str:
    """A short digest of the layers of a model and of the code of those that are not torch's.

    It is the same in every process, and for another comment in the code. Functions that the layers
    call are not looked at.
    """
    digest = hashlib.sha256()
    for text in _texts(model):
        digest.update(f"{_ADDRESS.sub('', text)}\0".encode(errors="replace"))
    return digest.hexdigest()[:16]


def _texts(model: nn.Module) -> Iterator[str]:
    yield repr(model)
    kinds = {type(module) for module in model.modules()}
    for kind in sorted(kinds, key=lambda kind: f"{kind.__module__}.{kind.__qualname__}"):
        if kind.__module__.partition(".")[0] in ("torch", "torchvision"):
            continue
        for name, member in sorted(vars(kind).items()):
            if inspect.isfunction(member):
                yield name
                yield from _code(member.__code__)


def _code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        elif isinstance(constant, frozenset):  # in another order in each process
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)
