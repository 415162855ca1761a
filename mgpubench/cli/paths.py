"""Paths on the command line, as people write them."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mgpubench.cli.options import is_given
from mgpubench.errors import RequestRefused


class PathText(click.ParamType):  # type: ignore[type-arg]
    """A path as text: `~` is the home folder, and an empty path is refused.

    A shell expands `--out ~/x`, and not `--out=~/x`.
    """

    name = "path"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """The path, with `~` expanded.

        Raises:
            RequestRefused: if it is empty. It would otherwise be taken for the current folder, or
                for an option that was not given.
        """
        if not isinstance(value, str):  # a default, which is no text
            return value
        if not value and param is not None and ctx is not None and is_given(ctx, param.name or ""):
            name = param.opts[0] if isinstance(param, click.Option) else param.make_metavar(ctx)
            raise RequestRefused(f"{name.strip('[].')} is empty", "Is a shell variable unset?")
        return os.path.expanduser(value)


class PathObject(PathText):
    """The same as a Path."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """The path, with `~` expanded."""
        text = super().convert(value, param, ctx)
        return Path(text) if isinstance(text, str) else text


PATH_TEXT = PathText()
PATH = PathObject()

NO_FILE = object()
"""The value of an option that takes a path and was given without one."""


class PathOrNone(PathText):
    """A path, or nothing behind the option: then the value is empty."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """The path with `~` expanded, or an empty text."""
        return "" if value is NO_FILE else super().convert(value, param, ctx)
