"""The sources of facts about the machine: files of the kernel, other programs, and psutil.

What they hide, or answer wrongly, is unknown, and never 0.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ANSWER_S = 15.0
"""How long a program may take. nvidia-smi is slow with many GPUs that are not in use."""


def file_text(path: Path) -> str:
    """The text of a file; empty if there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def known(read: Callable[[], T]) -> T | None:
    """What a function of os or psutil reads; None if the kernel's files are hidden or odd."""
    try:
        return read()
    except (OSError, RuntimeError, LookupError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program prints, and how it ends."""

    text: str
    exit_code: int | None
    """None if it is missing or hangs."""


def program_answer(*command: str) -> Answer:
    """What a program prints, and its exit code."""
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return Answer("", None)
    return Answer(answer.stdout, answer.returncode)


def program_output(*command: str) -> str:
    """What a program prints; empty if it is missing, fails or hangs."""
    answer = program_answer(*command)
    return answer.text if answer.exit_code == 0 else ""
