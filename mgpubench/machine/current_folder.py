"""The folder in which the command was started. Imports little, since every command checks it."""

from __future__ import annotations

import os

from mgpubench.errors import RequestRefused


def check_current_folder() -> None:
    """Refuse to start in a folder that has been removed, where no process can start.

    Raises:
        RequestRefused: if it has been removed.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise RequestRefused(
            "the current folder no longer exists", "Change to another folder."
        ) from error
