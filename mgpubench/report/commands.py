"""Commands that would give a verdict, for the user to copy."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from mgpubench.analysis.groups import Group
from mgpubench.analysis.row import Row
from mgpubench.config.preset import STANDARD
from mgpubench.config.types import (
    DEFAULT_MAX_ROUNDS,
    DEFAULT_OPTIMIZER,
    IMAGE_FOLDER,
    MODES,
    SYNTHETIC,
)
from mgpubench.format import plain, shell_path

Folders = Mapping[str, Path]
"""The folder of each session."""


def command_to_resume(session_id: str, folders: Folders, rounds: int, *, until: bool = True) -> str:
    """Go on with a session until it is decided, or up to a number of rounds."""
    folder = shell_path(folders[session_id]) if session_id in folders else "SESSION"
    if not until:
        return f"mgpubench run --resume {folder} --rounds {rounds}"
    limit = f" --max-rounds {rounds}" if rounds > DEFAULT_MAX_ROUNDS else ""
    return f"mgpubench run --resume {folder} --until decided{limit}"


def command_to_run(rows: Iterable[Row], also: Iterable[str] = ()) -> str:
    """Measure rows of equal work in one session, and perhaps more modes on the same devices."""
    rows = list(rows)
    named = {*(row.mode for row in rows), *also}
    modes = [mode for mode in MODES if mode in named]
    counts = sorted({row.num_devices for row in rows if row.mode != "single"})
    words = ["mgpubench run", f"--mode {','.join(modes)}"]
    if counts:
        words.append(f"--gpus {','.join(map(str, counts))}")
    return " ".join([*words, *_work(rows[0].group), *_options(rows)])


def _work(group: Group) -> list[str]:
    """The options that make the work of a group, but for those at their defaults."""
    data = group.data
    if data.startswith(IMAGE_FOLDER):
        data = f"FOLDER/{data.removeprefix(IMAGE_FOLDER)}"
    micro_batch = group.batch_per_device and group.batch_per_device // (group.accumulate or 1)
    given = {
        "--device": "cpu" if group.device_type == "cpu" else None,
        "--model": _unless(group.model, STANDARD.model),
        "--data": _unless(data, SYNTHETIC),
        "--image-size": group.image_size,
        "--precision": group.precision or None,
        "--optimizer": _unless(group.optimizer, DEFAULT_OPTIMIZER),
        "--batch-per-gpu": _unless(micro_batch, STANDARD.batch_per_gpu),
        "--global-batch": group.global_batch,
        "--accumulate": _unless(group.accumulate or 1, 1),
        "--workers-per-gpu": group.workers_per_device,
        "--warmup-steps": _unless(group.warmup_steps, STANDARD.warmup_steps),
        "--steps": _unless(group.steps, STANDARD.steps),
    }
    flags = {"--channels-last": group.channels_last, "--compile": group.compiled}
    return [
        *(f"{option} {_word(value)}" for option, value in given.items() if value is not None),
        *(flag for flag, is_set in flags.items() if is_set),
    ]


def _unless(value: object, default: object) -> object:
    return None if value in (default, "") else value


def _word(value: object) -> str:
    """A value from a result file as one word of a shell command."""
    return shlex.quote(plain(str(value)))


def _options(rows: list[Row]) -> list[str]:
    """Options of DDP and cuDNN, if one row has those of all others. Most are of DDP alone."""
    settings = [row.options.split(";") for row in rows if row.options]
    most = max(settings, key=len, default=[])
    if not all(set(each) <= set(most) for each in settings):
        return []
    words = []
    for setting in most:
        name, _, value = setting.partition("=")
        if not name.startswith("env:"):
            option = _word(f"--{name.replace('_', '-')}")
            words.append(option if value == "true" else f"{option} {_word(value)}")
    return words
