"""The supervisor names the right cause, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mgpubench.launch.supervisor as supervisor_module
from mgpubench.config.run_config import RunConfig
from mgpubench.errors import BenchError, RunFailed
from mgpubench.launch.supervisor import Supervisor
from mgpubench.session.workers import launch_run
from tests.processes import all_processes, mgpubench, wait_until

pytestmark = pytest.mark.faults

Make = Callable[..., RunConfig]


def launch(supervisor: Supervisor, config: RunConfig, target: str) -> list[Any]:
    """What the ranks of a run return that call a function of `tests.hurt`."""
    ranks: list[Any] = launch_run(supervisor, config, lambda steps: None, f"tests.hurt:{target}")
    return ranks


def fail(supervisor: Supervisor, config: RunConfig, target: str) -> RunFailed:
    """The same for a run that fails: its error."""
    with pytest.raises(RunFailed) as caught:
        launch(supervisor, config, target)
    return caught.value


@pytest.fixture
def two_ranks(cpu_config: Make) -> RunConfig:
    return cpu_config(mode="ddp", num_devices=2)


def test_a_rank_that_raises_is_named_and_not_its_peer(
    supervisor: Supervisor, two_ranks: RunConfig
) -> None:
    error = fail(supervisor, two_ranks, "raises_on_rank_1")
    assert error.message == "ddp x2: rank 1: ValueError: the true cause"
    assert "Traceback" in error.details


def test_an_earlier_error_about_a_peer_is_not_the_cause(
    supervisor: Supervisor, two_ranks: RunConfig
) -> None:
    error = fail(supervisor, two_ranks, "peer_speaks_first")
    assert error.message == "ddp x2: rank 1: ValueError: the true cause"


def test_a_rank_that_exits_with_0_is_a_failure(
    supervisor: Supervisor, two_ranks: RunConfig
) -> None:
    began = time.monotonic()
    error = fail(supervisor, two_ranks, "exits_with_0_on_rank_1")
    assert "rank 1" in error.message
    assert "exited with code 0 without leaving a record" in error.message
    assert "last words of rank 1" in error.details
    assert time.monotonic() - began < 30  # rank 0 would sleep for 60 s


def test_a_killed_rank_is_named_with_its_signal(
    supervisor: Supervisor, two_ranks: RunConfig
) -> None:
    error = fail(supervisor, two_ranks, "killed_on_rank_1")
    assert "rank 1" in error.message
    assert "signal 9 (SIGKILL)" in error.message


def test_a_rank_that_ignores_sigterm_is_ended_at_the_timeout(
    supervisor: Supervisor, cpu_config: Make
) -> None:
    error = fail(supervisor, cpu_config(timeout_s=1.0), "hangs")
    assert "single x1 did not end within --timeout 1 s: 0 of 5 steps done" in error.message


def test_out_of_memory_is_recognised(supervisor: Supervisor, cpu_config: Make) -> None:
    error = fail(supervisor, cpu_config(), "runs_out_of_memory")
    assert "out of memory" in error.message
    assert "--batch-per-gpu" in error.hint


def test_the_children_of_a_failed_rank_are_ended_too(
    supervisor: Supervisor, cpu_config: Make
) -> None:
    fail(supervisor, cpu_config(), "fails_with_children")
    child = int((supervisor.scratch / "child.pid").read_text())
    wait_until(
        lambda: child not in [process.pid for process in all_processes()], 5, f"end of {child}"
    )


def test_a_large_result_does_not_hang(supervisor: Supervisor, cpu_config: Make) -> None:
    (result,) = launch(supervisor, cpu_config(), "returns_much")
    assert len(result) == 200_000


def test_a_missing_target_says_that_torch_cannot_be_imported(supervisor: Supervisor) -> None:
    with pytest.raises(BenchError, match="cannot be imported: No module named 'no_such_module'"):
        supervisor.call("no_such_module:function")


def test_variables_of_launchers_do_not_reach_the_ranks(
    supervisor: Supervisor, cpu_config: Make
) -> None:
    (environment,) = launch(supervisor, cpu_config(), "environment")
    assert environment["GLOO_SOCKET_IFNAME"] == environment["NCCL_SOCKET_IFNAME"] == "lo"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert not [name for name in environment if name.startswith(("SLURM_", "MASTER_"))]


def test_the_scratch_folder_of_a_job_is_removed(
    supervisor: Supervisor, two_ranks: RunConfig
) -> None:
    supervisor.call("os:getpid")  # which starts the fork server, with files of its own
    before = set(os.listdir(supervisor.scratch))
    fail(supervisor, two_ranks, "raises_on_rank_1")
    assert set(os.listdir(supervisor.scratch)) == before


def test_an_error_whose_message_cannot_be_made_ends_the_run_too(
    supervisor: Supervisor, cpu_config: Make
) -> None:
    error = fail(supervisor, cpu_config(), "raises_without_words")
    assert error.message == "single x1: rank 0: WithoutWords"


def test_a_thread_that_still_runs_is_not_waited_for(
    supervisor: Supervisor, cpu_config: Make
) -> None:
    began_s = time.monotonic()
    assert launch(supervisor, cpu_config(), "leaves_a_thread") == [7]
    error = fail(supervisor, cpu_config(), "raises_beside_a_thread")
    assert error.message == "single x1: rank 0: ValueError: the true cause"
    assert time.monotonic() - began_s < 30


def test_a_start_that_hangs_ends_with_an_error(
    supervisor: Supervisor, cpu_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if torch were on a network disk that does not answer."""
    supervisor.call("os:getpid")
    server = supervisor._server._server._forkserver_pid
    os.kill(server, signal.SIGSTOP)
    monkeypatch.setattr(supervisor_module, "SHORT_JOB_TIMEOUT_S", 0.5)
    with pytest.raises(RunFailed, match="torch was not loaded within"):
        supervisor.call("os:getpid")
    monkeypatch.undo()
    assert supervisor.call("os:getpid") != os.getpid()


@pytest.mark.parametrize("command", ["run --smoke --steps 1", "info"])
def test_a_folder_for_temporary_files_with_a_long_name_is_reported(
    tmp_path: Path, command: str
) -> None:
    """The fork server's socket is in it, and the path of a socket may have 107 characters."""
    folder = tmp_path / ("a" * 80)
    folder.mkdir()
    ended = mgpubench(*command.split(), cwd=tmp_path, env={"TMPDIR": str(folder)})
    text = ended.err + ended.out
    assert "a worker process cannot be started: AF_UNIX path too long" in text
    assert "Traceback" not in text


def test_info_in_a_folder_that_was_removed_says_so(tmp_path: Path) -> None:
    ended = mgpubench(
        "info", cwd=tmp_path, prefix=("sh", "-c", 'mkdir x; cd x; rmdir ../x; exec "$@"', "sh")
    )
    assert ended.wait() == 2
    assert "the current folder no longer exists" in ended.err


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("raises_something_odd", "single x1: rank 0: Odd"),
        ("uses_up_all_files", "single x1: rank 0: OSError: [Errno 24] Too many open files"),
        ("says_very_much", "single x1: rank 0: ValueError: " + "x" * 500 + "..."),
    ],
)
def test_odd_errors_are_reported_as_well_as_possible(
    supervisor: Supervisor, cpu_config: Make, target: str, words: str
) -> None:
    assert fail(supervisor, cpu_config(), target).message.startswith(words)


def test_a_rank_without_a_stdout_keeps_its_result(supervisor: Supervisor, cpu_config: Make) -> None:
    assert launch(supervisor, cpu_config(), "takes_stdout_away") == [7]


def test_an_error_of_mgpubench_that_a_users_model_raises_is_reported(
    supervisor: Supervisor, cpu_config: Make
) -> None:
    error = fail(supervisor, cpu_config(), "raises_ours")
    assert error.message == "single x1: rank 0: Interrupted: interrupted by SIGINT"


def test_a_run_that_ended_while_this_process_slept_is_not_over_its_time(
    supervisor: Supervisor, cpu_config: Make
) -> None:
    """As after Ctrl-Z: the time limit has passed meanwhile, but the result is there."""
    config = cpu_config(timeout_s=0.01)

    def refuse(steps: int) -> None:
        pytest.fail("a run that has ended is not watched")

    monotonic = supervisor_module.time.monotonic
    target = "tests.hurt:takes_stdout_away"
    wait_for_news = supervisor._wait_for_news

    def wait_long(alive: Any, timeout_s: float) -> None:
        until_s = monotonic() + 10
        while any(worker.is_alive for worker in alive) and monotonic() < until_s:
            time.sleep(0.01)
        wait_for_news(alive, timeout_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "_wait_for_news", wait_long)
        assert launch_run(supervisor, config, refuse, target) == [7]
