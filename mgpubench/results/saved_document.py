"""session.json as a reader of results takes it: what it says about the machine and the call.

It adds to the rows, which stand on their own. So whatever is wrong with the file, or lacks in it,
is unknown, and no error. `session.document` reads the file to resume a session, and is strict.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mgpubench.results.session_folder import SESSION_JSON

NOTHING: Mapping[str, Any] = {}


def read_document(folder: Path, session_id: str) -> Mapping[str, Any]:
    """session.json of a session; empty if there is none, or if it is that of another session."""
    try:
        document = json.loads((folder / SESSION_JSON).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return NOTHING
    if not isinstance(document, dict) or document.get("session_id") != session_id:
        return NOTHING
    return document


def look_up(document: object, place: str) -> object:
    """The value at a place such as `system.cpu_model`; None if there is none."""
    for name in place.split("."):
        if not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document


def list_at(document: object, place: str) -> list[Any]:
    """The list at a place; empty if there is none."""
    found = look_up(document, place)
    return found if isinstance(found, list) else []


def names_at(document: object, place: str) -> dict[str, Any]:
    """The object at a place; empty if there is none."""
    found = look_up(document, place)
    return found if isinstance(found, dict) else {}
