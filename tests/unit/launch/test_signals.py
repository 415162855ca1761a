"""Signals become a flag, and strike only where there is nothing to lose."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator

import pytest

from mgpubench.errors import Interrupted
from mgpubench.launch.signals import STOPPING_SIGNALS, StopSignal


@pytest.fixture(autouse=True)
def restored_handlers() -> Iterator[None]:
    before = {signum: signal.getsignal(signum) for signum in STOPPING_SIGNALS}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


def is_readable(stop: StopSignal) -> bool:
    return bool(select.select([stop], [], [], 0)[0])


def send(signum: signal.Signals) -> None:
    os.kill(os.getpid(), signum)


def test_nothing_is_raised_without_a_signal() -> None:
    with StopSignal().installed() as stop:
        stop.check()
        with stop.raising():
            pass
        assert not is_readable(stop)


@pytest.mark.parametrize(
    ("signum", "exit_code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_a_signal_is_noted_and_raised_when_asked_for(
    signum: signal.Signals, exit_code: int
) -> None:
    with StopSignal().installed() as stop:
        send(signum)  # nothing is raised here
        assert is_readable(stop)
        with pytest.raises(Interrupted) as caught:
            stop.check()
    assert caught.value.signum == signum
    assert caught.value.exit_code == exit_code
    assert caught.value.message == f"interrupted by {signum.name}"


def test_the_first_of_several_signals_counts() -> None:
    with StopSignal().installed() as stop:
        send(signal.SIGTERM)
        send(signal.SIGINT)
        with pytest.raises(Interrupted, match="SIGTERM"):
            stop.check()
        with pytest.raises(Interrupted, match="SIGTERM"):
            stop.check()  # the flag stays


def test_inside_raising_a_signal_strikes_at_once() -> None:
    with StopSignal().installed() as stop:
        with pytest.raises(Interrupted, match="SIGINT"), stop.raising():
            send(signal.SIGINT)
        send(signal.SIGINT)  # raising is over


def test_raising_begins_with_what_has_come_before() -> None:
    with StopSignal().installed() as stop:
        send(signal.SIGINT)
        with pytest.raises(Interrupted), stop.raising():
            pytest.fail("it went on")


def test_without_a_signal_the_handlers_are_as_before() -> None:
    before = [signal.getsignal(signum) for signum in STOPPING_SIGNALS]
    with StopSignal().installed():
        assert [signal.getsignal(signum) for signum in STOPPING_SIGNALS] != before
    assert [signal.getsignal(signum) for signum in STOPPING_SIGNALS] == before


def test_after_a_signal_a_late_second_one_is_ignored() -> None:
    with StopSignal().installed():
        send(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    send(signal.SIGINT)  # the program says why it ends, and is not killed


def test_signals_that_the_caller_ignores_stay_ignored() -> None:
    """What nohup and a shell's `&` do."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopSignal().installed() as stop:
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        send(signal.SIGHUP)
        stop.check()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
