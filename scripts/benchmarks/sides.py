"""What the benches share: measuring two sides in turn, and reporting the result."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from mgpubench.analysis.comparison import Comparison, Evidence, Session, conclude
from mgpubench.analysis.stats import ERROR_RATE
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import RunConfig
from mgpubench.machine import host
from mgpubench.training.devices import Part
from mgpubench.training.rank import make_part
from mgpubench.training.step import TrainStep
from mgpubench.training.technique import Wrapped
from mgpubench.training.trainable import build_model

MARGIN = 0.02


def report(what: str, figure: str, target: str, reached: bool) -> bool:
    """Print one line, and return whether the target was reached."""
    print(f"{'ok  ' if reached else 'MISS'}  {what}: {figure}  (target: {target})", flush=True)
    return reached


def in_turn(ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[float, float]:
    """One figure of each side, measured in random order."""
    if random.random() < 0.5:
        first = ours()
        return first, theirs()
    second = theirs()
    return ours(), second


def compare_rates(ours: Callable[[], float], theirs: Callable[[], float], pairs: int) -> Comparison:
    """The ratio of two rates over a number of pairs, after one pair that does not count."""
    in_turn(ours, theirs)
    return compare_pairs([in_turn(ours, theirs) for _ in range(pairs)])


def compare_pairs(pairs: Sequence[tuple[float, float]]) -> Comparison:
    """The ratio of two sides, as mgpubench judges the rounds of one session."""
    session = Session(logs=tuple(math.log(ours / theirs) for ours, theirs in pairs))
    evidence = Evidence(sessions=(session,), unpaired_ratio=math.exp(session.mean))
    return conclude(evidence, MARGIN, ERROR_RATE)


def interval_of(comparison: Comparison) -> str:
    """`95 % CI 1.1..1.2, 9 pairs`."""
    low, high = comparison.interval or (float("nan"), float("nan"))
    return f"95 % CI {low:.3f}..{high:.3f}, {comparison.pairs} pairs"


def cpu_config(request: Request) -> RunConfig:
    """The first run of a request on this machine's CPU."""
    return make_plan(request, host.assumed_machine(0)).runs[0]


def only_part(config: RunConfig, listing: Path = Path("none")) -> Part:
    """The part of a run with one process, as its rank gets it."""
    # The step counter stays in memory when its file is removed.
    with tempfile.TemporaryDirectory() as folder:
        return make_part(config, 0, Path(folder), listing)


def step_of(part: Part) -> TrainStep:
    """The step of a run on one device."""
    model = build_model(part)
    return TrainStep(Wrapped(model=model, plain=model), part)
