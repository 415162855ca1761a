"""Events that rank 0 writes into a file, a line of JSON each, for the parent to read while it
runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EVENTS_FILE = "events.jsonl"

Event = dict[str, Any]


class EventWriter:
    """The worker's side."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, event: Event) -> None:
        """Append an event."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")


class EventReader:
    """The parent's side."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new_events(self) -> list[Event]:
        """The events since the last call. An unfinished line is left for the next one."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._position += len(whole)
        return [json.loads(line) for line in whole.splitlines()]
