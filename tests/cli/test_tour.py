"""The tour of the README leads to what it names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TOUR = README.partition("\n## A tour of the code\n")[2]

LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


def tour() -> Iterator[tuple[str, str, str]]:
    """Every file and name of the tables, with the text of the link to the file."""
    for line in TOUR.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and (links := LINK.findall(cells[1])):
            for text, file in links:
                for name in re.findall(r"`([^`]+)`", cells[2]):
                    yield text, file, name


STOPS = list(tour())


def definitions(body: Iterable[ast.stmt]) -> Iterator[str]:
    """What some statements define; `Class.method` too."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield node.name
            yield from (f"{node.name}.{member}" for member in definitions(node.body))
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_the_parser_sees_functions_classes_methods_and_constants() -> None:
    source = """
import a
B = 1
C: int = 2
def d(): e = 3
class F:
    G = 4
    def h(self): pass
"""
    assert list(definitions(ast.parse(source).body)) == ["B", "C", "d", "F", "F.G", "F.h"]


def test_every_row_of_the_tables_is_a_stop() -> None:
    rows = [line for line in TOUR.splitlines() if line.startswith("|")]
    headers = [line for line in rows if line.endswith("| file | name |")]
    rules = [line for line in rows if set(line) == {"|", "-"}]
    assert len(headers) == len(rules) == 2
    stops = [line for line in rows if LINK.search(line) and re.search(r"\| `\w.*` \|$", line)]
    assert len(stops) == len(rows) - len(headers) - len(rules)
    assert len(STOPS) >= len(stops)


@pytest.mark.parametrize(("text", "file", "name"), STOPS)
def test_the_file_defines_the_name(text: str, file: str, name: str) -> None:
    assert file == f"mgpubench/{text}"
    assert name in set(definitions(ast.parse((ROOT / file).read_text(encoding="utf-8")).body))


def test_the_tour_lists_every_room() -> None:
    rooms = re.findall(r"^- `(\w+)/`: ", TOUR, re.MULTILINE)
    folders = [path.parent.name for path in (ROOT / "mgpubench").glob("*/__init__.py")]
    assert sorted(rooms) == sorted(folders)
