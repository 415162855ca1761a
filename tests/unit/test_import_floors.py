"""Imports go down or sideways, never up, and what is heavy is imported only where it is used."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import mgpubench

PACKAGE = Path(mgpubench.__file__).parent

FLOORS = {
    # Pure: no I/O.
    "mgpubench": 0,
    "mgpubench.errors": 0,
    "mgpubench.format": 0,
    "mgpubench.fieldtypes": 0,
    "mgpubench.config": 0,
    "mgpubench.order": 0,
    "mgpubench.request": 0,
    "mgpubench.devices": 0,
    "mgpubench.plan": 0,
    "mgpubench.records": 0,
    "mgpubench.metrics": 0,
    "mgpubench.stats": 0,
    # Files, facts of the host, and judgement.
    "mgpubench.host": 1,
    "mgpubench.imagefolder": 1,
    "mgpubench.rows": 1,
    "mgpubench.results": 1,
    "mgpubench.attempts": 1,
    "mgpubench.reader": 1,
    "mgpubench.resume": 1,
    "mgpubench.checks": 1,
    # One light package each.
    "mgpubench.system": 2,
    "mgpubench.doctor": 2,
    "mgpubench.gpu_doctor": 2,
    "mgpubench.info": 2,
    "mgpubench.pools": 2,
    "mgpubench.compare": 2,
    "mgpubench.wording": 2,
    "mgpubench.export": 2,
    "mgpubench.report": 2,
    "mgpubench.summary": 2,
    "mgpubench.display": 2,
    # Torch, and the processes that it runs in.
    "mgpubench.machine": 3,
    "mgpubench.models": 3,
    "mgpubench.trainable": 3,
    "mgpubench.architecture": 3,
    "mgpubench.preflight": 3,
    "mgpubench.compilation": 3,
    "mgpubench.data": 3,
    "mgpubench.images": 3,
    "mgpubench.timing": 3,
    "mgpubench.train": 3,
    "mgpubench.share": 3,
    "mgpubench.runners": 3,
    "mgpubench.runners.single": 3,
    "mgpubench.runners.dp": 3,
    "mgpubench.runners.ddp": 3,
    "mgpubench.runners.cpu_replicas": 3,
    "mgpubench.launch": 3,
    "mgpubench.launch.cause": 3,
    "mgpubench.launch.preload": 3,
    "mgpubench.launch.preload_training": 3,
    "mgpubench.launch.preload_torchvision": 3,
    "mgpubench.launch.forkserver": 3,
    "mgpubench.launch.orphans": 3,
    "mgpubench.launch.pace": 3,
    "mgpubench.launch.progress": 3,
    "mgpubench.launch.scratch": 3,
    "mgpubench.launch.rank": 3,
    "mgpubench.launch.signals": 3,
    "mgpubench.launch.supervisor": 3,
    "mgpubench.launch.worker": 3,
    "mgpubench.survey": 3,
    "mgpubench.recorder": 3,
    "mgpubench.session": 3,
    # The command line.
    "mgpubench.cli": 4,
    "mgpubench.cli.compare": 4,
    "mgpubench.cli.info": 4,
    "mgpubench.cli.options": 4,
    "mgpubench.cli.run": 4,
    "mgpubench.cli.streams": 4,
    "mgpubench.__main__": 4,
}

THIRD_PARTY = {0: set(), 1: set(), 2: {"pandas", "psutil", "rich"}, 3: set(), 4: {"click"}}
"""What a module of a floor may import at module level, beyond the standard library."""

WITH_TORCH = {
    *(
        f"mgpubench.{name}"
        for name in (
            *("machine", "models", "trainable", "architecture", "preflight", "compilation"),
            *("data", "images", "timing", "train", "share"),
        )
    ),
    *(f"mgpubench.runners.{name}" for name in ("single", "dp", "ddp", "cpu_replicas")),
    "mgpubench.launch.rank",
}
"""Modules that run in workers only: they, and no others, may pull torch in."""

WITH_TORCHVISION = {"mgpubench.images"}
"""Imported only where the data are images."""


def modules() -> dict[str, Path]:
    """Every module of the package, by its dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def module_level_imports(source: str) -> set[str]:
    """Dotted names that are imported whenever the module is; `from a import b` gives `a.b` too."""
    found = set()
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
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


def imports_of(module: str) -> set[str]:
    return module_level_imports(MODULES[module].read_text())


def own_imports(module: str) -> set[str]:
    return imports_of(module) & set(MODULES)


def third_party_imports(module: str) -> set[str]:
    tops = {name.partition(".")[0] for name in imports_of(module)}
    return tops - sys.stdlib_module_names - {"mgpubench"}


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
    assert module_level_imports(source) == {"a.b", "c", "c.d", "e", "f", "g"}


def test_every_module_has_a_floor() -> None:
    assert set(FLOORS) == set(MODULES)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_never_go_up(module: str) -> None:
    above = {name for name in own_imports(module) if FLOORS[name] > FLOORS[module]}
    assert not above


@pytest.mark.parametrize("module", sorted(MODULES))
def test_third_party_imports_are_those_of_the_floor(module: str) -> None:
    allowed = THIRD_PARTY[FLOORS[module]] | ({"torch"} if module in WITH_TORCH else set())
    if module in WITH_TORCHVISION:
        allowed = allowed | {"torchvision", "PIL"}
    assert third_party_imports(module) <= allowed


@pytest.mark.parametrize("module", sorted(set(MODULES) - WITH_TORCHVISION))
def test_images_are_imported_only_inside_functions(module: str) -> None:
    assert not own_imports(module) & WITH_TORCHVISION


@pytest.mark.parametrize("module", sorted(set(MODULES) - WITH_TORCH))
def test_what_the_parent_imports_does_not_lead_to_torch(module: str) -> None:
    assert not own_imports(module) & WITH_TORCH


def loaded_by(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after some code."""
    script = f"{code}\nimport sys, json; print(json.dumps(list(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


def command(*arguments: str) -> str:
    """Code that runs a command which must end well."""
    return f"""
from click.testing import CliRunner
from mgpubench.cli import cli
result = CliRunner().invoke(cli, {list(arguments)!r})
assert result.exit_code == 0, result.output
"""


HEAVY = {"torch", "torchvision", "pandas", "rich", "scipy", "numpy"}


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("run", "--help"), ("compare", "--help"), ("info", "--help")],
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


@pytest.mark.parametrize("module", ["session", "survey", "info", "display", "summary"])
def test_the_parent_of_a_run_never_imports_torch(module: str) -> None:
    assert not loaded_by(f"import mgpubench.{module}") & {"torch", "torchvision"}
