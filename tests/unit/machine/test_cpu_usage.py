"""CPU time of the cores that this process may use, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from mgpubench.machine import cpu_usage
from mgpubench.machine.cpu_usage import CpuTime, cpu_time


class Core(NamedTuple):
    """The counters of one core in seconds, as psutil gives them."""

    user: float
    nice: float = 0.0
    system: float = 0.0
    idle: float = 1000.0
    iowait: float = 50.0
    irq: float = 0.0
    softirq: float = 0.0
    steal: float = 0.0
    guest: float = 7.0


def measured(
    monkeypatch: pytest.MonkeyPatch, cores: Sequence[Any] | Exception, usable: tuple[int, ...]
) -> CpuTime:
    def cpu_times(*, percpu: bool) -> Sequence[Any]:
        assert percpu
        if isinstance(cores, Exception):
            raise cores
        return cores

    monkeypatch.setattr(cpu_usage.psutil, "cpu_times", cpu_times)
    monkeypatch.setattr(cpu_usage, "usable_core_numbers", lambda: usable)
    return cpu_time()


def test_busy_is_all_but_idle_and_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    core = Core(user=1.0, nice=2.0, system=4.0, irq=8.0, softirq=16.0, steal=32.0)
    assert measured(monkeypatch, [core], (0,)).busy_s == 63.0


def test_only_the_cores_that_this_process_may_use_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A container with 4 of 64 cores does not see the work of its 60 neighbours as its own."""
    cores = [Core(user=1000.0)] * 60 + [Core(user=1.0 + number) for number in range(4)]
    time = measured(monkeypatch, cores, (60, 61, 62, 63))
    assert (time.busy_s, time.num_cores) == (10.0, 4)


@pytest.mark.parametrize(
    "cores",
    [
        [],
        [Core(user=0.0)] * 4,  # as some containers show it
        OSError("hidden"),
        RuntimeError("odd"),
        IndexError("odd"),
        ValueError("odd"),
    ],
    ids=repr,
)
def test_counters_that_are_all_zero_or_cannot_be_read_are_unknown(
    monkeypatch: pytest.MonkeyPatch, cores: Sequence[Any] | Exception
) -> None:
    assert measured(monkeypatch, cores, (0, 1)).busy_s is None


def test_usable_cores_beyond_those_that_are_shown_are_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = measured(monkeypatch, [Core(user=5.0)] * 2, (4, 5))
    assert (time.busy_s, time.num_cores) == (None, 0)


def test_a_core_that_is_not_shown_makes_the_others_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    time = measured(monkeypatch, [Core(user=5.0)] * 2, (1, 2))
    assert (time.busy_s, time.num_cores) == (None, 0)


def test_a_system_without_all_kinds_of_time_is_counted_by_those_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class MacCore(NamedTuple):
        user: float
        nice: float
        system: float
        idle: float

    core = MacCore(user=1.0, nice=2.0, system=4.0, idle=99.0)
    assert measured(monkeypatch, [core], (0,)).busy_s == 7.0


def test_time_goes_on_this_machine() -> None:
    before = cpu_time()
    sum(range(10**6))
    after = cpu_time()
    assert after.at_s > before.at_s
    assert after.own_s >= before.own_s
    assert before.num_cores == after.num_cores > 0
