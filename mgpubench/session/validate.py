"""Are the values of a dataclass what its annotations say? For what comes from a file."""

from __future__ import annotations

from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def check_fields(instance: Any) -> None:
    """Check every field of a dataclass.

    Raises:
        TypeError: naming the first field with a value that is not of its type.
    """
    kinds = get_type_hints(type(instance))
    for field in fields(instance):
        value = getattr(instance, field.name)
        if not fits(value, kinds[field.name]):
            raise TypeError(f"{field.name} is {value!r}")


def fits(value: object, kind: Any) -> bool:
    """True where a value is of a type: a class, a union, a Literal, or a tuple of such."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is tuple:
        return isinstance(value, tuple) and _fit(value, parts)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return isinstance(value, NoneType if kind is None else kind)


def _fit(values: tuple[object, ...], parts: tuple[Any, ...]) -> bool:
    if parts[1:] == (Ellipsis,):
        return all(fits(value, parts[0]) for value in values)
    return len(values) == len(parts) and all(map(fits, values, parts))
