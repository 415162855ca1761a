"""session.json comes back as it was written, and is refused if it was changed since."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import mgpubench
from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import DdpOptions
from mgpubench.errors import RequestRefused
from mgpubench.results.session_folder import (
    DIGEST,
    SESSION_JSON,
    Session,
    digest_of,
    open_session,
)
from mgpubench.session.document import called_part, load_session, own_commit
from tests.unit.session.conftest import CONDITIONS

EDITED = r"--resume .*: session\.json is not as mgpubench wrote it"


def test_request_and_plan_come_back_as_they_were(
    session: Session, machine: Callable[..., Machine], request_of: Request
) -> None:
    saved = load_session(session.folder)
    assert saved.id == session.id
    assert saved.request == request_of
    assert saved.plan == make_plan(request_of, machine(2))
    assert {name: saved.document[name] for name in CONDITIONS} == CONDITIONS


def test_variants_and_their_variables_come_back_as_they_were(
    tmp_path: Path, machine: Callable[..., Machine], request_of: Request
) -> None:
    variants = (
        replace(request_of, variant="default", variant_number=1),
        replace(
            request_of,
            variant="one",
            variant_number=2,
            ddp=DdpOptions(bucket_cap_mb=1.5),
            env=(("MALLOC_ARENA_MAX", "1"), ("OMP_WAIT_POLICY", "PASSIVE")),
        ),
    )
    wanted = replace(request_of, until="2%", max_rounds=9, cool_down_s=0.5, variants=variants)
    plan = make_plan(wanted, machine(2))
    with open_session(tmp_path, called_part(wanted, plan, ["run"]), datetime.now(UTC)) as session:
        saved = load_session(session.folder)
    assert saved.request == wanted
    assert saved.plan == plan
    # They are keys: those of the fork servers.
    assert {run.env for run in saved.plan.runs} == {variant.env for variant in variants}


def edit(session: Session, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the document, as an editor would: the digest stays."""
    path = session.folder / SESSION_JSON
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mgpubench_version": "0.0.1"}, r"mgpubench 0\.0\.1 .*made this session"),
        ({"mgpubench_commit": "0123456789ab"}, "commit 0123456789ab, .*made this session"),
        ({"schema_version": 2}, "schema 2\\) made this session, .*schema 1\\)"),
    ],
)
@pytest.mark.parametrize("is_signed", [True, False])
def test_a_session_of_another_mgpubench_is_refused_by_name(
    session: Session, change: dict[str, object], words: str, is_signed: bool
) -> None:
    def apply(document: dict[str, Any]) -> None:
        document.update(change)
        digest = document.pop(DIGEST)
        document[DIGEST] = digest_of(document) if is_signed else digest

    edit(session, apply)
    with pytest.raises(RequestRefused, match=words):
        load_session(session.folder)


@pytest.mark.parametrize(
    "change",
    [
        {"plan": []},
        {"session_id": ["a"]},
        {"session_id": "20260101T000000Z-000000"},
        {"plan": ["x"]},
        {"request": [1]},
        {"plan": [{"round": 1}]},
        {"request": {"color": 1}},
        {"notices": ["another notice"]},
        {"machine": {}},
        {"a_new_key": None},
    ],
    ids=str,
)
def test_a_session_that_was_edited_is_refused(session: Session, change: dict[str, object]) -> None:
    edit(session, lambda document: document.update(change))
    with pytest.raises(RequestRefused, match=EDITED) as caught:
        load_session(session.folder)
    assert caught.value.hint == "Undo what was edited in it, or start a new session."


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", "20"),
        ("steps", 20),
        ("timeout_s", None),
        ("ddp", 5),
        ("ddp", {}),
        ("cudnn_benchmark", True),
        ("batch_per_device", 0),
        ("world_size", 0),
        ("mode", "foo"),
        ("position", 1),
        ("channels_last", 1),
    ],
)
def test_a_plan_that_was_edited_is_refused(session: Session, field: str, value: object) -> None:
    edit(session, lambda document: document["plan"][1].update({field: value}))
    with pytest.raises(RequestRefused, match=EDITED):
        load_session(session.folder)


@pytest.mark.parametrize("digest", [None, "", "0123456789abcdef", 7, []])
def test_a_session_without_its_digest_is_refused(session: Session, digest: object) -> None:
    edit(session, lambda document: document.update({DIGEST: digest}))
    with pytest.raises(RequestRefused, match=EDITED):
        load_session(session.folder)
    edit(session, lambda document: document.pop(DIGEST))
    with pytest.raises(RequestRefused, match=EDITED):
        load_session(session.folder)


def test_a_session_whose_edit_was_undone_is_accepted(session: Session) -> None:
    """Only its content counts, and not how an editor has written it."""
    edit(session, lambda document: document.update({"machine": {}}))
    edit(session, lambda document: document.update({"machine": CONDITIONS["machine"]}))
    assert load_session(session.folder).id == session.id


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 100_000, None])
def test_what_is_no_session_is_refused_with_its_path(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / SESSION_JSON).write_text(content)
    with pytest.raises(RequestRefused, match=r"--resume .*session\.json"):
        load_session(tmp_path)


def test_the_commit_is_that_of_the_checkout() -> None:
    if not (Path(mgpubench.__file__).parents[1] / ".git").exists():
        assert own_commit() == ""
    else:
        assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?", own_commit())
