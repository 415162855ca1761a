"""`--variant "NAME: OPTIONS"`: the same work with a few other options, to be compared with it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

from mgpubench.cli.work_options import WORK, options
from mgpubench.config.types import MODES
from mgpubench.errors import RequestRefused
from mgpubench.launch.environment import LAUNCHER_VARIABLES

EXAMPLE = 'For example: --variant "default:" --variant "cap50: --bucket-cap-mb 50"'

AA = ("aa-1", "aa-2")
"""The variants of --aa, which are equal."""

_NAME = re.compile(r"[\w.+-]+")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_OVERRIDDEN = re.compile(
    rf"{LAUNCHER_VARIABLES.pattern}|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|MGPUBENCH_\w+"
    r"|\w+_SOCKET_IFNAME|NVIDIA_TF32_OVERRIDE|PYTHONSAFEPATH|TORCHINDUCTOR_CACHE_DIR"
)
"""Variables that mgpubench sets itself, so that a variant cannot."""


@dataclass(frozen=True, slots=True)
class VariantOptions:
    """What a variant sets."""

    name: str
    values: dict[str, Any]
    """By the names of the parameters of `run`."""
    env: tuple[tuple[str, str], ...]


@click.command("variant", add_help_option=False)
@options(WORK)
@click.option("--env", multiple=True)
def _variant(**values: object) -> None:
    """A command that is never run: it parses the options of a variant."""


def parse_variants(texts: Sequence[str], given: Mapping[str, str]) -> list[VariantOptions]:
    """The variants of a command line.

    `given` names the options beside them: parameter name to option.

    Raises:
        RequestRefused: if a variant cannot be understood, or repeats an option.
    """
    return [_parse(text, given) for text in texts]


def _parse(text: str, given: Mapping[str, str]) -> VariantOptions:
    name, colon, rest = text.partition(":")
    name = name.strip()
    _check_name(text, name if colon else "")
    context = _parse_options(name, rest)
    values = {
        parameter: value
        for parameter, value in context.params.items()
        if context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE
    }
    _check_not_given(name, values, given)
    env = values.pop("env", ())
    return VariantOptions(name, values, tuple(_parse_env(name, each) for each in env))


def _check_name(text: str, name: str) -> None:
    if not name:
        raise RequestRefused(f"--variant {text!r} has no name before a colon", EXAMPLE)
    if name in MODES:
        raise RequestRefused(
            f"--variant {name}: the name of a mode cannot be the name of a variant", EXAMPLE
        )
    if not _NAME.fullmatch(name):
        raise RequestRefused(
            f"--variant {name!r}: a name has letters, digits and . _ + - only", EXAMPLE
        )


def _parse_options(name: str, text: str) -> click.Context:
    try:
        return _variant.make_context(name, shlex.split(text))
    except click.exceptions.NoSuchOption as error:
        raise RequestRefused(
            f"--variant {name}: a variant cannot have {error.option_name}",
            "It sets options that change the work or its settings, and --env NAME=VALUE.",
        ) from error
    except (click.UsageError, ValueError) as error:
        message = error.format_message() if isinstance(error, click.UsageError) else str(error)
        raise RequestRefused(f"--variant {name}: {message.rstrip('.')}", EXAMPLE) from error


def _check_not_given(name: str, parameters: Iterable[str], given: Mapping[str, str]) -> None:
    for parameter in parameters:
        if parameter in given:
            raise RequestRefused(
                f"--variant {name} sets {given[parameter]}, which is also given beside the "
                "variants",
                "Set it in each variant, or once for all.",
            )


def _parse_env(name: str, text: str) -> tuple[str, str]:
    variable, equals, value = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(variable):
        raise RequestRefused(f"--variant {name}: --env {text!r} is not NAME=VALUE")
    if _OVERRIDDEN.fullmatch(variable):
        raise RequestRefused(
            f"--variant {name}: --env {variable} has no effect, since mgpubench sets it itself"
        )
    return variable, value
