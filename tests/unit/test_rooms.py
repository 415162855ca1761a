"""A room imports only rooms above it; what is heavy is imported only where it is used."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mgpubench

PACKAGE = Path(mgpubench.__file__).parent

ROOMS: dict[str, set[str]] = {
    "": set(),
    "config": set(),
    "results": set(),
    "machine": {"psutil"},
    "analysis": set(),
    "report": {"jinja2", "pandas", "rich"},
    "launch": set(),
    "training": {"torch"},
    "runners": {"torch"},
    "collectives": {"torch"},
    "session": set(),
    "cli": {"click"},
}
"""The rooms from the ground up, and what each may import at module level."""

TORCH_IN = re.compile(
    r"mgpubench\.(machine\.cuda|training\.(?!data(\.(listing|split))?$|schedule$).+"
    r"|(runners|collectives)\..+)"
)
"""Modules that run in workers only: they, and no others, may load torch."""

TORCHVISION_IN = {"mgpubench.training.data.decode", "mgpubench.training.data.augment"}
"""Imported only where the data are images."""

AT_THE_TOP = {"mgpubench", "mgpubench.__main__", "mgpubench.errors", "mgpubench.format"}

DOTTED = re.compile(r"mgpubench(\.[a-z_]+)+")


def modules() -> dict[str, Path]:
    """Every module of the package, by its dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def room_of(dotted: str) -> str:
    """The room of a module; the ground floor's has no name. `__main__` is a part of the CLI."""
    if dotted == "mgpubench.__main__":
        return "cli"
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else ""


def floor_of(dotted: str) -> int:
    return list(ROOMS).index(room_of(dotted))


def imports(tree: ast.AST, *, module_level_only: bool) -> set[str]:
    """Dotted names that are imported; `from a import b` gives `a.b` too."""
    found = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if module_level_only:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                pending += node.orelse
                continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        pending += ast.iter_child_nodes(node)
    return found


def dotted_strings(tree: ast.AST) -> set[str]:
    """Names of modules in strings: `"mgpubench.runners.dp:run"`; docstrings are no code."""
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value
    ]
    return {match.group() for text in texts for match in DOTTED.finditer(text)}


def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


def module_level_imports(module: str) -> set[str]:
    return imports(tree_of(module), module_level_only=True)


def test_the_parser_sees_what_is_imported_at_module_level() -> None:
    source = """
import a.b
from c import d
if TYPE_CHECKING:
    import hidden
try:
    import e
except ImportError:
    import f
class C:
    import g
    def method(self):
        import hidden
def function():
    import hidden
"""
    tree = ast.parse(source)
    assert imports(tree, module_level_only=True) == {"a.b", "c", "c.d", "e", "f", "g"}
    assert "hidden" in imports(tree, module_level_only=False)


def test_the_parser_sees_modules_that_are_named_in_strings() -> None:
    tree = ast.parse('run("mgpubench.runners.dp:run", f"mgpubench.cli.{name}")')
    assert dotted_strings(tree) == {"mgpubench.runners.dp", "mgpubench.cli"}


def test_four_modules_lie_at_the_top() -> None:
    assert {
        name for name in MODULES if name.count(".") < 2 and MODULES[name].parent == PACKAGE
    } == (AT_THE_TOP)


def test_every_folder_is_a_room() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set(ROOMS) - {""}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_module_imports_or_names_a_room_below_its_own(module: str) -> None:
    tree = tree_of(module)
    named = imports(tree, module_level_only=False) | dotted_strings(tree)
    below = {name for name in named if floor_of(name) > floor_of(module)}
    assert not below


@pytest.mark.parametrize("module", sorted(MODULES))
def test_third_party_imports_are_those_of_the_room(module: str) -> None:
    allowed = ROOMS[room_of(module)] | ({"torch"} if TORCH_IN.fullmatch(module) else set())
    if module in TORCHVISION_IN:
        allowed = allowed | {"torchvision", "PIL"}
    tops = {name.partition(".")[0] for name in module_level_imports(module)}
    assert tops - sys.stdlib_module_names - {"mgpubench"} <= allowed


@pytest.mark.parametrize("module", sorted(set(MODULES) - TORCHVISION_IN))
def test_images_are_imported_only_inside_functions(module: str) -> None:
    assert not TORCHVISION_IN & module_level_imports(module)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_what_the_parent_imports_does_not_lead_to_torch(module: str) -> None:
    if not TORCH_IN.fullmatch(module):
        own = module_level_imports(module) & set(MODULES)
        assert not {name for name in own if TORCH_IN.fullmatch(name)}


def loaded_by(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after some code."""
    script = f"{code}\nimport sys, json; print(json.dumps(list(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


def command(*arguments: str) -> str:
    """Code that runs a command which must succeed."""
    return f"""
from click.testing import CliRunner
from mgpubench.cli import cli
result = CliRunner().invoke(cli, {list(arguments)!r})
assert result.exit_code == 0, result.output
"""


HEAVY = {"torch", "torchvision", "pandas", "rich", "scipy", "numpy", "jinja2"}


@pytest.mark.parametrize(
    "arguments",
    [
        *(("--help",), ("--version",)),
        *((command, "--help") for command in ("run", "compare", "report", "info")),
    ],
    ids=" ".join,
)
def test_help_and_version_import_nothing_heavy(arguments: tuple[str, ...]) -> None:
    loaded = loaded_by(command(*arguments))
    assert "click" in loaded
    assert not loaded & HEAVY


def test_compare_leaves_torch_out(tmp_path: Path) -> None:
    header = (
        "schema_version,status,mode,num_devices,throughput_samples_per_s,"
        "session_id,round,effective_mode,device_type"
    )
    rows = [f"1,ok,{mode},2,{rate},s,1,{mode},cuda" for mode, rate in (("dp", 150), ("ddp", 190))]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([header, *rows, ""]))
    loaded = loaded_by(command("compare", str(path)))
    assert "rich" in loaded
    assert not loaded & {"torch", "torchvision"}


def test_the_parent_of_a_run_never_imports_torch() -> None:
    parents = sorted(
        name for name in MODULES if room_of(name) in ("session", "report", "launch", "cli")
    )
    # The fork server imports `preload`, to load torch.
    parents = [name for name in parents if not name.endswith("__main__") and "preload" not in name]
    code = "\n".join(f"import {name}" for name in parents)
    assert not loaded_by(code) & {"torch", "torchvision"}
