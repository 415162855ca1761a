"""What no line of the package may do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mgpubench

PACKAGE = Path(mgpubench.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """The dotted name of every function that is called, as it is written there."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_durations_never_come_of_a_clock_that_can_be_set(path: Path) -> None:
    """The time of day goes back and forth; it is only for names and dates of sessions."""
    names = [name for name, _ in calls(path)]
    assert "time.time" not in names
    if path.stem not in ("session", "recorder"):
        assert not [name for name in names if name.startswith("datetime.")]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_nothing_that_somebody_else_wrote_is_unpickled_or_run(path: Path) -> None:
    """Pickles go only through the scratch folder, which is 0700 and ours."""
    names = [name for name, _ in calls(path)]
    assert not {"eval", "exec", "os.system"} & set(names)
    if path.stem != "supervisor":
        assert not {"pickle.load", "pickle.loads"} & set(names)
    for name, call in calls(path):
        if name == "torch.load":
            told = {word.arg: ast.unparse(word.value) for word in call.keywords}
            assert told.get("weights_only") == "True"
        assert not any(word.arg == "shell" for word in call.keywords)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_text_is_read_as_markup(path: Path) -> None:
    """A `[` may come from a file's name: rich gets Text, or a console without markup."""
    for name, call in calls(path):
        if name == "Console":
            words = {word.arg: ast.unparse(word.value) for word in call.keywords}
            told_to_take_it_literally = words.get("markup") == "False"
            assert told_to_take_it_literally or path.stem in ("summary", "compare")


def names_in(path: Path, function: str) -> list[str]:
    """What a function calls, in the order of the source."""
    (found,) = (
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == function
    )
    calls = [node for node in ast.walk(found) if isinstance(node, ast.Call)]
    return [ast.unparse(call.func) for call in sorted(calls, key=lambda call: call.lineno)]


def test_a_rank_chooses_its_gpu_before_anything_is_allocated() -> None:
    """C41: else every rank opens a context on GPU 0."""
    order = names_in(PACKAGE / "launch" / "rank.py", "run_rank")
    assert order.index("set_up_process") < order.index("runner.run")
    assert order[:2] == ["make_share", "set_up_process"]
    assert names_in(PACKAGE / "share.py", "set_up_process")[0] == "torch.cuda.set_device"
