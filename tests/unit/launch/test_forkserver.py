"""What the fork server, and so every worker, inherits; several of them side by side."""

from __future__ import annotations

import multiprocessing.forkserver
import os
from pathlib import Path
from typing import Any

import pytest

from mgpubench.launch import forkserver
from mgpubench.launch.forkserver import MODULE_FUNCTIONS, PRELOAD_VARIABLE, ForkServer
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from tests.processes import all_processes

ENVIRONMENT = "tests.hurt:environment"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The environment in which each fork server would have been started. None is."""
    environments: list[dict[str, str]] = []
    monkeypatch.setattr(
        multiprocessing.forkserver.ForkServer,
        "ensure_running",
        lambda server: environments.append(dict(os.environ)),
    )
    return environments


def test_workers_do_not_get_a_variable_that_overrides_the_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[dict[str, str]]
) -> None:
    """It is removed before they load NVIDIA's libraries, which may read it at once."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    with ForkServer(tmp_path, [], {}).in_use():
        assert "NVIDIA_TF32_OVERRIDE" not in started[0]
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"


@pytest.mark.parametrize(
    ("name", "folder"),
    [("TORCHINDUCTOR_CACHE_DIR", "compiled"), ("TORCH_EXTENSIONS_DIR", "extensions")],
)
def test_a_users_own_folder_for_compiled_code_is_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    started: list[dict[str, str]],
    name: str,
    folder: str,
) -> None:
    monkeypatch.delenv(name, raising=False)
    with ForkServer(tmp_path, [], {}).in_use():
        assert started[0][name] == str(tmp_path / folder)
    assert name not in os.environ
    monkeypatch.setenv(name, "of-the-user")
    with ForkServer(tmp_path, [], {}).in_use():
        assert started[1][name] == "of-the-user"


def test_modules_to_preload_are_named_for_the_fork_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[dict[str, str]]
) -> None:
    monkeypatch.delenv(PRELOAD_VARIABLE, raising=False)
    with ForkServer(tmp_path, ("one.module", "another"), {}).in_use():
        assert started[0][PRELOAD_VARIABLE] == "one.module another"
    assert PRELOAD_VARIABLE not in os.environ


def test_variables_of_a_variant_are_for_its_fork_server_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[dict[str, str]]
) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "9")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    variant = {"MALLOC_ARENA_MAX": "1", "OMP_WAIT_POLICY": "passive"}
    for variables in (variant, {}):
        with ForkServer(tmp_path, [], variables).in_use():
            pass
        assert os.environ["MALLOC_ARENA_MAX"] == "9"
        assert "OMP_WAIT_POLICY" not in os.environ
    seen = [(each["MALLOC_ARENA_MAX"], each.get("OMP_WAIT_POLICY")) for each in started]
    assert seen == [("1", "passive"), ("9", None)]


def test_pythons_own_fork_server_is_back_after_each_use(
    tmp_path: Path, started: list[dict[str, str]]
) -> None:
    module: Any = multiprocessing.forkserver
    before = [getattr(module, name) for name in MODULE_FUNCTIONS]

    def use() -> None:
        with ForkServer(tmp_path, [], {}).in_use():
            assert [getattr(module, name) for name in MODULE_FUNCTIONS] != before
            raise ValueError("a start that fails")

    with pytest.raises(ValueError, match="a start that fails"):
        use()
    assert [getattr(module, name) for name in MODULE_FUNCTIONS] == before


def pid_of(supervisor: Supervisor) -> int:
    """The fork server of a supervisor."""
    pid = supervisor._server._server._forkserver_pid
    assert isinstance(pid, int)
    return pid


def seen_by(supervisor: Supervisor, name: str) -> str | None:
    """A variable as a worker of a supervisor sees it."""
    value: str | None = supervisor.call(ENVIRONMENT).get(name)
    return value


def alive(pids: set[int]) -> set[int]:
    return pids & {process.pid for process in all_processes()}


def test_two_fork_servers_live_side_by_side_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They load nothing here, so that this takes no seconds."""
    name = "OMP_WAIT_POLICY"
    monkeypatch.delenv(name, raising=False)
    with StopSignal().installed() as stop, open_supervisor(stop, []) as plain:
        assert seen_by(plain, name) is None
        with open_supervisor(stop, [], {name: "passive"}) as other:
            assert seen_by(other, name) == "passive"
            assert seen_by(plain, name) is None
            assert seen_by(other, name) == "passive"
            pids = {pid_of(plain), pid_of(other)}
            assert len(alive(pids)) == 2
            scratches = {plain.scratch, other.scratch}
            assert len(scratches) == 2
        assert alive(pids) == {pid_of(plain)}
        assert seen_by(plain, name) is None
    assert not alive(pids)
    assert not [folder for folder in scratches if folder.exists()]


def test_the_death_of_one_fork_server_is_not_the_end_of_the_other() -> None:
    with (
        StopSignal().installed() as stop,
        open_supervisor(stop, []) as first,
        open_supervisor(stop, []) as second,
    ):
        parents = [supervisor.call("os:getppid") for supervisor in (first, second)]
        assert parents == [pid_of(first), pid_of(second)]
        first._server.kill()
        assert second.call("os:getppid") == parents[1]
        # A new one is started for the next worker.
        assert first.call("os:getppid") == pid_of(first) != parents[0]


def test_workers_of_a_machine_without_gpus_wait_without_spinning_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[dict[str, str]]
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for may_have_gpu in (False, True):
        monkeypatch.setattr(forkserver, "may_have_gpu", lambda: may_have_gpu)  # noqa: B023
        with ForkServer(tmp_path, [], {}).in_use():
            pass
    monkeypatch.setattr(forkserver, "may_have_gpu", lambda: False)
    with ForkServer(tmp_path, [], {"OMP_WAIT_POLICY": "active"}).in_use():
        pass
    assert [each.get("GOMP_SPINCOUNT") for each in started] == ["1000", None, None]
    assert "GOMP_SPINCOUNT" not in os.environ
