"""session.json as readers of results take it: what is wrong or missing is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpubench.results.saved_document import list_at, look_up, names_at, read_document

DOCUMENT = {"system": {"cores": 4, "interfaces": [1, 2], "packages": {"torch": "2.6"}}}


def test_the_document_of_a_session_is_read(tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text('{"session_id": "s1", "argv": ["run"]}')
    assert read_document(tmp_path, "s1") == {"session_id": "s1", "argv": ["run"]}


@pytest.mark.parametrize(
    "content",
    [b"", b"[1]", b"{", b"\xff", b"[" * 100_000, b'{"session_id": "s2"}', b'{"argv": []}'],
    ids=["empty", "list", "unfinished", "not-utf8", "too-deep", "of-another", "without-id"],
)
def test_what_is_no_such_document_is_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "session.json").write_bytes(content)
    assert read_document(tmp_path, "s1") == {}


def test_a_folder_without_one_has_an_empty_document(tmp_path: Path) -> None:
    assert read_document(tmp_path, "s1") == {}
    assert read_document(tmp_path / "missing", "s1") == {}


def test_values_are_looked_up_by_their_place() -> None:
    assert look_up(DOCUMENT, "system.cores") == 4
    assert list_at(DOCUMENT, "system.interfaces") == [1, 2]
    assert names_at(DOCUMENT, "system.packages") == {"torch": "2.6"}


@pytest.mark.parametrize("place", ["gpus", "system.gpus", "system.cores.count", "system.cores"])
def test_a_place_without_a_list_or_names_has_none(place: str) -> None:
    assert list_at(DOCUMENT, place) == []
    assert names_at(DOCUMENT, place) == {}
    if place != "system.cores":
        assert look_up(DOCUMENT, place) is None
