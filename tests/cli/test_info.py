"""`mgpubench info` on this machine, and without torch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.processes import Command, mgpubench


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Command:
    return mgpubench("info", cwd=tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    command = mgpubench("info", "--format", "json", cwd=tmp_path_factory.mktemp("json"))
    assert command.wait() == 0
    found: dict[str, object] = json.loads(command.out)
    return found


def test_it_succeeds_and_prints_nothing_on_stderr(text: Command) -> None:
    assert text.wait() == 0
    assert text.err == ""


def test_facts_come_first_and_remedies_last(text: Command) -> None:
    import torch

    facts, _, advice = text.out.rpartition("\n\n")
    names = [line.partition("  ")[0] for line in facts.splitlines()]
    assert names[:3] == ["mgpubench", "system", "torch"]
    assert {"CPU", "RAM", "/dev/shm", "open files"} <= set(names)
    assert torch.__version__ in facts
    lines = advice.splitlines()
    assert re.fullmatch(
        r"nothing found that would hurt a benchmark"
        r"|\d+ problems? that will hurt or limit a benchmark:",
        lines[0],
    )
    assert all(line.startswith(("- ", "  remedy: ")) for line in lines[1:])


def test_json_has_all_that_is_known(document: dict[str, object]) -> None:
    keys = {"mgpubench_version", "system", "machine", "build", "environment", "advice"}
    assert set(document) == keys | {"torch_error"}
    assert document["torch_error"] == ""
    assert isinstance(document["build"], dict)
    assert "gloo" in document["build"]["backends"]


def test_it_works_without_torch(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('libcudart.so.13: no such file')\n")
    command = mgpubench("info", cwd=tmp_path, env={"PYTHONPATH": str(broken.parent)})
    assert command.wait() == 0
    assert command.err == ""
    assert "torch cannot be imported: libcudart.so.13: no such file [no-torch]" in command.out
    assert "CPU " in command.out
