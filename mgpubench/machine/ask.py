"""The two sources of facts about the machine: files of the kernel, and other programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

ANSWER_S = 15.0
"""How long a program may take. nvidia-smi is slow with many GPUs that are not in use."""


def file_text(path: Path) -> str:
    """The text of a file; empty if there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""


def program_output(*command: str) -> str:
    """What a program prints; empty if it is missing, fails or hangs."""
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=ANSWER_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout
