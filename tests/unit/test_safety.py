"""What no line of the package may do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mgpubench

PACKAGE = Path(mgpubench.__file__).parent
SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))
}


def calls(source: str) -> Iterator[tuple[str, ast.Call]]:
    """The dotted name of every function that is called, as it is written there."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("path", SOURCES)
def test_durations_are_never_measured_with_a_clock_that_can_be_set(path: str) -> None:
    """The time of day can be set back. It is only for names and dates of sessions."""
    names = [name for name, _ in calls(SOURCES[path])]
    assert "time.time" not in names
    of_sessions = ("run", "recorder", "train", "comm", "comm_recorder")
    if path not in (
        "results/read.py",
        "machine/sampler.py",
        "analysis/endurance.py",  # moments of runs in a file, for words
        *(f"session/{name}.py" for name in of_sessions),
    ):
        assert not [name for name in names if name.startswith("datetime.")]


@pytest.mark.parametrize("path", SOURCES)
def test_nothing_that_another_program_wrote_is_unpickled_or_run(path: str) -> None:
    """Pickles are only in the scratch folder, which is ours and has mode 0700."""
    names = [name for name, _ in calls(SOURCES[path])]
    assert not {"eval", "exec", "os.system"} & set(names)
    if path != "launch/processes.py":
        assert not {"pickle.load", "pickle.loads"} & set(names)
    for name, call in calls(SOURCES[path]):
        if name == "torch.load":
            words = {word.arg: ast.unparse(word.value) for word in call.keywords}
            assert words.get("weights_only") == "True"
        assert not any(word.arg == "shell" for word in call.keywords)


@pytest.mark.parametrize("path", SOURCES)
def test_no_text_is_read_as_markup(path: str) -> None:
    """A `[` may come from a file's name: rich gets Text, or a console without markup."""
    for name, call in calls(SOURCES[path]):
        if name == "Console":
            words = {word.arg: ast.unparse(word.value) for word in call.keywords}
            assert words.get("markup") == "False"
