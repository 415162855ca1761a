"""Has a user's own model changed? Neither its name nor its size shows that."""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from torch import nn

from mgpubench.config.digest import hex_digits
from mgpubench.machine.ask import file_text

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

INSTALLED = frozenset({"site-packages", "dist-packages"})
NOT_THE_USERS = frozenset({"mgpubench", "torch", "torchvision"})
"""Packages that count by their version, even if they are not installed in the usual place."""


def digest_of(model: nn.Module, name: str) -> str:
    """16 hex digits that differ if the layers of a model or the user's code differ.

    The code is that of the model's package, and of every other loaded module that is not installed,
    so it includes the functions that the model calls. Comments and formatting do not count. Files
    that the code reads count only if they change the layers.

    Args:
        model: the model, after a forward pass, so that all its modules are loaded.
        name: `package.module:function`.
    """
    digest = hashlib.sha256()
    for text in (_ADDRESS.sub("", repr(model)), *_sources(name)):
        digest.update(f"{text}\0".encode(errors="replace"))
    return hex_digits(digest.digest(), 16)


def _sources(name: str) -> Iterator[str]:
    package = name.partition(":")[0].partition(".")[0]
    for module_name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        top = module_name.partition(".")[0]
        is_users = top == package or not _is_installed(Path(file))
        if file.endswith(".py") and is_users and top not in NOT_THE_USERS:
            yield f"{module_name}\0{_without_comments(file_text(Path(file)))}"


def _is_installed(file: Path) -> bool:
    is_standard = file.is_relative_to(sysconfig.get_path("stdlib"))
    return is_standard or not INSTALLED.isdisjoint(file.parts)


def _without_comments(source: str) -> str:
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError):  # edited since it was loaded
        return source
