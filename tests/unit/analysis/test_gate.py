"""`--fail-if-slower` at its borders."""

from __future__ import annotations

import pytest

from mgpubench.analysis.gate import Gate, check_gate
from mgpubench.analysis.stats import Interval


def result_of(*intervals: Interval | None, allowed: float = 0.05) -> str:
    return check_gate([(f"row {i}", each) for i, each in enumerate(intervals)], allowed).result


@pytest.mark.parametrize(
    ("interval", "result"),
    [
        ((0.90, 0.9499), "tripped"),
        ((0.90, 0.95), "undecided"),  # its upper end is not below
        ((0.9499, 0.96), "undecided"),
        ((0.95, 0.96), "passed"),
        ((0.99, 1.01), "passed"),
        ((1.2, 1.3), "passed"),
        ((0.80, 1.20), "undecided"),
        (None, "undecided"),
    ],
)
def test_a_gate_looks_at_the_whole_interval(interval: Interval | None, result: str) -> None:
    assert result_of(interval) == result


@pytest.mark.parametrize(
    ("allowed", "result"), [(0.03, "undecided"), (0.02, "tripped"), (0.06, "passed")]
)
def test_a_gate_is_as_strict_as_was_wished(allowed: float, result: str) -> None:
    assert result_of((0.945, 0.975), allowed=allowed) == result


GOOD, BAD, WIDE = (0.99, 1.01), (0.90, 0.92), (0.90, 1.10)


@pytest.mark.parametrize(
    ("intervals", "result"),
    [
        ((GOOD, GOOD), "passed"),
        ((GOOD, WIDE), "undecided"),
        ((GOOD, None), "undecided"),
        ((GOOD, WIDE, BAD), "tripped"),  # one is enough
        ((BAD, BAD), "tripped"),
        ((), "undecided"),  # nothing was shown
    ],
)
def test_all_ratios_must_pass_and_one_can_trip(
    intervals: tuple[Interval | None, ...], result: str
) -> None:
    assert result_of(*intervals) == result


def test_a_gate_names_what_it_checked() -> None:
    gate = check_gate([("ddp", GOOD), ("dp", BAD)], 0.05)
    assert isinstance(gate, Gate)
    assert [(each.name, each.result) for each in gate.checked] == [
        ("ddp", "passed"),
        ("dp", "tripped"),
    ]
