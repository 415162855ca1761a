"""The process with the pretended devices: built, started and asked once for all tests."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


class CaseFailed(Exception):
    """What went wrong in a case, in the words of the other process."""


class Simulation:
    """The other process, seen from here."""

    def __init__(self, guard: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.simulated.server", str(guard)],
            cwd=HERE.parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> None:
        """Wait until it is ready; skip the tests if this torch cannot have such devices."""
        if reason := self._read()["refused"]:
            pytest.skip(reason)

    def __call__(self, case: str, **arguments: Any) -> dict[str, Any]:
        """The facts that a function of `cases` finds.

        Raises:
            CaseFailed: if it raises.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"case": case, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise CaseFailed(answer["error"]) from Exception(answer["details"])
        facts: dict[str, Any] = answer["facts"]
        return facts

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"it ended with code {self._process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """It ends when the questions do."""
        self._process.communicate(timeout=30)


@pytest.fixture(scope="session")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The device guard, built with g++."""
    if shutil.which("g++") is None:
        pytest.skip("the pretended devices are built with g++, which was not found")
    import torch

    root, library = Path(torch.__file__).parent, tmp_path_factory.mktemp("guard") / "libguard.so"
    built = subprocess.run(
        [
            *("g++", "-std=c++20", "-shared", "-fPIC", str(HERE / "guard.cpp")),
            *(f"-I{root / 'include'}", f"-L{root / 'lib'}", "-lc10"),
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
            *("-o", str(library)),
        ],
        capture_output=True,
        text=True,
    )
    if built.returncode and sysconfig.get_platform() != "linux-x86_64":
        pytest.skip(f"g++ cannot build the pretended devices here: {built.stderr[:200]}")
    assert built.returncode == 0, built.stderr
    return library


@pytest.fixture(scope="session")
def simulation(guard: Path) -> Iterator[Simulation]:
    """Asks for a case: `simulation("step", model="mlp", on=[0, 1], batch=8)`."""
    started = Simulation(guard)
    try:
        started.wait()
        yield started
    finally:
        started.end()
