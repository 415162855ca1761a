"""When a run is ended early, and when it may continue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpubench.errors import RunFailed
from mgpubench.launch.pace import Pace
from mgpubench.launch.step_count import StepCount

PACE = Pace(label="single x1", warmup_steps=4, total_steps=20, timeout_s=100.0)
"""4 + 16 steps, and 100 s for them; the pace may miss that by a quarter."""


def paced(steps: int, seconds_per_step: float) -> StepCount:
    """So many steps, of which all but the first took so long."""
    return StepCount(steps, 0, round((steps - 1) * seconds_per_step * 1e9))


@pytest.mark.parametrize(
    ("count", "elapsed_s"),
    [
        (StepCount(0, 0, 0), 100.0),  # the limit itself is in time
        (paced(3, 1000.0), 10.0),  # still in the warm-up
        (paced(4, 7.0), 13.0),  # 13 + 16 x 7 = 125 = 1.25 x 100
        (paced(20, 7.0), 100.0),
    ],
    ids=str,
)
def test_a_run_that_may_end_in_time_continues(count: StepCount, elapsed_s: float) -> None:
    PACE.check(count, elapsed_s)


def test_a_run_that_cannot_end_in_time_is_ended_after_the_warm_up() -> None:
    with pytest.raises(RunFailed) as caught:
        PACE.check(paced(4, 7.0), 13.1)
    assert caught.value.message == (
        "single x1 cannot end within --timeout 100 s: 4 of 20 steps done, 7 s a step; it would "
        "need about 2 min 05 s"
    )
    assert caught.value.hint.startswith("Raise --timeout")


@pytest.mark.parametrize("warmup_steps", [0, 1])
def test_one_step_is_no_pace(warmup_steps: int) -> None:
    pace = replace(PACE, warmup_steps=warmup_steps, total_steps=warmup_steps + 10, timeout_s=1.0)
    pace.check(paced(1, 0.0), 0.9)
    with pytest.raises(RunFailed):
        pace.check(paced(2, 0.5), 0.9)


def test_a_run_over_its_time_limit_is_ended_at_any_pace() -> None:
    with pytest.raises(RunFailed) as caught:
        PACE.check(StepCount(0, 0, 0), 100.1)
    assert caught.value.message == (
        "single x1 did not end within --timeout 100 s: 0 of 20 steps done"
    )
    with pytest.raises(RunFailed, match=r"did not end .* 19 of 20 steps done, 0\.1 s a step"):
        PACE.check(paced(19, 0.1), 100.1)
