"""The one cause among what several machines saw."""

from __future__ import annotations

from mgpubench.errors import BenchError, RequestRefused, RunFailed
from mgpubench.launch.cause import RanksFailed
from mgpubench.launch.nodes.cause import find_cause_of_nodes
from mgpubench.launch.nodes.messages import Done
from tests.unit.launch.test_cause import PEER, ended, raised

OK = Done(results=(1, 2))
ASKED = Done(was_asked=True)
ECHO = Done(exits=(raised(0, PEER), raised(1, PEER)))
LABEL = "ddp x4 on 2 machines"


def cause(*outcomes: Done) -> BenchError:
    return find_cause_of_nodes(dict(enumerate(outcomes)), LABEL)


def test_a_signal_on_another_node_comes_before_errors_here() -> None:
    error = cause(Done(exits=(raised(0, "first"),)), Done(exits=(raised(2, PEER), ended(3, -9))))
    assert error.message.startswith(f"{LABEL}: node 1: rank 3 (pid 103) was killed by signal 9")
    assert "dmesg" in error.hint


def test_a_silent_exit_comes_before_errors() -> None:
    error = cause(Done(exits=(raised(0, "first"),)), Done(exits=(ended(2, 0),)))
    assert "node 1: rank 2 (pid 102) exited with code 0" in error.message


def test_an_error_comes_before_its_echo() -> None:
    error = cause(ECHO, Done(exits=(raised(2, "real", at_s=99.0),)))
    assert error.message == f"{LABEL}: node 1: rank 2: RuntimeError: real"


def test_clocks_of_different_nodes_are_not_compared() -> None:
    late, early = Done(exits=(raised(0, "a", at_s=9e9),)), Done(exits=(raised(2, "b", at_s=1.0),))
    assert cause(late, early).message == f"{LABEL}: node 0: rank 0: RuntimeError: a"


def test_within_a_node_the_earliest_error_counts() -> None:
    both = Done(exits=(raised(2, "later", at_s=2.0), raised(3, "earlier", at_s=1.0)))
    assert cause(ECHO, both).message == f"{LABEL}: node 1: rank 3: RuntimeError: earlier"


def test_a_time_limit_comes_before_the_echo_it_makes() -> None:
    limit = RunFailed("did not end within --timeout 15 s")
    assert cause(Done(error=limit), ECHO) is limit


def test_a_signal_comes_before_a_time_limit() -> None:
    error = cause(Done(error=RunFailed("late")), Done(exits=(ended(2, -11),)))
    assert "signal 11" in error.message


def test_a_part_that_was_asked_to_end_explains_nothing() -> None:
    assert "RuntimeError: mine" in cause(ASKED, Done(exits=(raised(2, "mine"),))).message
    assert "Connection closed by peer" in cause(ECHO, ASKED).message
    assert "without a reason" in cause(ASKED, ASKED).message


def test_a_refusal_of_a_rank_is_the_error_itself() -> None:
    refusal = RequestRefused("no", "hint")
    assert cause(OK, Done(exits=(raised(2, "no", refusal=refusal),))) is refusal


def test_only_results_are_no_failure() -> None:
    assert not OK.has_failed
    assert all(outcome.has_failed for outcome in (ASKED, ECHO, Done(error=RunFailed("x"))))


def test_failed_ranks_are_counted_for_people() -> None:
    assert RanksFailed([ended(1, 3)], "ddp x4").message == "ddp x4: 1 rank failed"
