"""The digest of a user's own model: another one for other work, and for nothing else."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mgpubench.training.preflight import inspect_model
from tests.conftest import make_cpu_config

NETS = """
import torch
from torch import nn

import blocks
from shop import settings

KINDS = {"deep", "other", "third"}  # a set, which has another order in each process


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 3, 3, stride=1)
        self.head = blocks.Head(7)

    def extra_repr(self):
        return f"{blocks.half}"  # with the address of the function

    def forward(self, images):
        import late

        features = self.first(images).relu() if "deep" in KINDS else images
        return self.head(late.scale(features))


def net():
    return Net()
"""

BLOCKS = """
from torch import nn


class Head(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.flat = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.last = nn.Linear(12, classes)

    def forward(self, features):
        return self.last(half(self.flat(features)))


def half(features):
    return features / 2
"""

FILES = {
    "shop/__init__.py": "",
    "shop/nets.py": NETS,
    "shop/settings.py": "RATE = 0.5\n",
    "shop/unused.py": "RATE = 0.5\n",
    "blocks.py": BLOCKS,
    "late.py": "import tools\n\n\ndef scale(features):\n    return tools.same(features)\n",
    "site-packages/tools.py": "def same(features):\n    return features\n",
    "site-packages/sold.py": "from shop.nets import net\n",
}
"""Modules of a user, of which `late` is imported in the forward pass; `tools` and `sold` are
installed."""

NAME = "shop.nets:net"
OWN = ("shop", "blocks", "late", "tools", "sold")

Digest = Callable[..., str]


def digest_now(name: str = NAME) -> str:
    """The digest of the model, from modules that are loaded again."""
    for module in list(sys.modules):
        if module.partition(".")[0] in OWN:
            del sys.modules[module]
    importlib.invalidate_caches()
    return inspect_model([make_cpu_config(model=name, image_size=8)]).digest


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The modules in the current folder. Nothing of them is left afterwards."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site-packages")])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for module in list(sys.modules):
        if module.partition(".")[0] in OWN:
            del sys.modules[module]


def edit(path: Path, before: str, after: str) -> None:
    """Replace what occurs once in a file."""
    content = path.read_text()
    assert content.count(before) == 1
    path.write_text(content.replace(before, after))


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        pytest.param("shop/nets.py", "stride=1", "stride=2", id="layer"),
        pytest.param("shop/nets.py", "(images).relu()", "(images).tanh()", id="forward"),
        pytest.param("shop/nets.py", '"third"', '"fourth"', id="constant"),
        pytest.param("shop/settings.py", "0.5", "0.6", id="other-module-of-the-package"),
        pytest.param("blocks.py", "features / 2", "features / 3", id="function-of-another-module"),
        pytest.param("blocks.py", "Pool2d(2)", "Pool2d((2, 2))", id="layer-of-another-module"),
        pytest.param("late.py", "tools.same(features)", "features * 2", id="module-loaded-late"),
    ],
)
def test_other_work_has_another_digest_though_the_size_is_the_same(
    shop: Path, file: str, before: str, after: str
) -> None:
    digest = digest_now()
    edit(shop / file, before, after)
    assert digest_now() != digest


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        pytest.param("shop/nets.py", "# a set, which", "# one that", id="comment"),
        pytest.param("blocks.py", "features / 2", "(features  /  2)  # half", id="formatting"),
        pytest.param("blocks.py", "\n\ndef half", "\n\n\n\n\ndef half", id="empty-lines"),
        pytest.param("shop/unused.py", "0.5", "0.6", id="module-that-is-not-loaded"),
        pytest.param("site-packages/tools.py", "features\n", "1 * features\n", id="installed"),
    ],
)
def test_the_same_work_has_the_same_digest(shop: Path, file: str, before: str, after: str) -> None:
    digest = digest_now()
    edit_last(shop / file, before, after)
    assert digest_now() == digest


def edit_last(path: Path, before: str, after: str) -> None:
    """Replace the last occurrence in a file."""
    head, found, tail = path.read_text().rpartition(before)
    assert found
    path.write_text(head + after + tail)


def test_a_model_in_an_installed_package_counts_with_its_code(shop: Path) -> None:
    digest = digest_now("sold:net")
    edit(shop / "site-packages" / "sold.py", "import net", "import net; RATE = 0.5")
    assert digest_now("sold:net") != digest


def test_code_that_was_broken_after_it_was_loaded_is_other_code(shop: Path) -> None:
    digest = digest_now()
    breaks_itself = "import pathlib, tools; pathlib.Path(__file__).write_text('(')\n"
    edit(shop / "late.py", "import tools\n", breaks_itself)
    assert digest_now() != digest


def test_a_digest_is_the_same_in_every_process(shop: Path) -> None:
    """Though sets have another order there, and functions another address."""
    code = (
        "from tests.conftest import make_cpu_config; "
        "from mgpubench.training.preflight import inspect_model; "
        f"print(inspect_model([make_cpu_config(model={NAME!r}, image_size=8)]).digest)"
    )
    path = os.pathsep.join([str(Path(__file__).parents[2]), str(shop / "site-packages")])
    digests = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert len(digests[0]) == 16
    assert digests[0] == digests[1]
