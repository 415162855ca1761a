"""How often verdicts are wrong: simulated sessions, judged by the product's own functions.

Each experiment draws the log throughputs of runs whose true ratio is 1, unless it says otherwise.
The suite runs a few hundred of them; `scripts/coverage` runs 2,000 a cell and writes
docs/statistics.md.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from mgpubench.analysis import stats
from mgpubench.analysis.compare import compare
from mgpubench.analysis.comparison import Comparison, Evidence, Session, conclude
from mgpubench.analysis.row import Row
from mgpubench.analysis.stats import ERROR_RATE
from mgpubench.config.order import draw_order
from mgpubench.results.merge import best_sittings
from mgpubench.results.schema import RunRecord

MARGIN = 0.02
SPREAD = 0.02
"""Standard deviation of the logarithm of a run's throughput."""

Noise = Callable[[random.Random], Iterator[float]]
"""An endless series of log disturbances, one for each run in the order of time."""


def independent(rng: random.Random, spread: float = SPREAD) -> Iterator[float]:
    """Every run has its own noise."""
    while True:
        yield rng.gauss(0, spread)


def correlated(rng: random.Random, spread: float = SPREAD, memory: float = 0.7) -> Iterator[float]:
    """AR(1): what disturbs a run disturbs the next ones too."""
    value = rng.gauss(0, spread)
    while True:
        yield value
        value = memory * value + rng.gauss(0, spread * math.sqrt(1 - memory**2))


def drifting(rng: random.Random, spread: float = SPREAD, per_run: float = 0.003) -> Iterator[float]:
    """Independent noise on a machine that becomes 0.3 % faster from run to run."""
    for slot in count():
        yield rng.gauss(0, spread) + per_run * slot


NOISES: dict[str, Noise] = {
    "independent": independent,
    "AR(0.7)": correlated,
    "drifting 0.3 % a run": drifting,
}

CONFIGURATIONS = ("single", "dp", "ddp")
CARRY_OVER = 0.03
"""A run right after one of dp is this much slower, for carry-over noise."""


@dataclass(frozen=True)
class Cell:
    """The outcome of many equal experiments without a difference."""

    experiments: int
    wrong: int
    """Experiments with a verdict faster or slower."""
    intervals: int
    """Intervals that were given..."""
    held: int
    """... and held the truth."""

    @property
    def wrong_share(self) -> float:
        """Share of experiments with a wrong verdict."""
        return self.wrong / self.experiments

    @property
    def coverage(self) -> float | None:
        """Share of intervals that held the truth; None if there was none."""
        return self.held / self.intervals if self.intervals else None


def tally(outcomes: Sequence[Sequence[Comparison]], truth: float = 1.0) -> Cell:
    """Count families of comparisons: one wrong verdict makes the family wrong."""
    comparisons = [comparison for family in outcomes for comparison in family]
    known = [each for each in comparisons if each.interval]
    return Cell(
        experiments=len(outcomes),
        wrong=sum(any(_is_wrong(each, truth) for each in family) for family in outcomes),
        intervals=len(known),
        held=sum(_holds(each, truth) for each in known),
    )


def _is_wrong(comparison: Comparison, truth: float) -> bool:
    if truth == 1.0:
        return comparison.verdict in ("faster", "slower")
    wrong = "slower" if truth > 1 else "faster"
    return comparison.verdict == wrong


def _holds(comparison: Comparison, truth: float) -> bool:
    assert comparison.interval
    low, high = comparison.interval
    return low <= truth <= high


def session_logs(
    rng: random.Random, noise: Noise, rounds: int, carry_over: float = 0.0
) -> dict[str, list[float]]:
    """Log throughputs of each configuration, round by round, in the product's own order."""
    disturbances = noise(rng)
    order = draw_order(len(CONFIGURATIONS), rounds, random.Random(rng.getrandbits(32)))
    logs: dict[str, list[float]] = {name: [] for name in CONFIGURATIONS}
    before = ""
    for index in order:
        name = CONFIGURATIONS[index]
        logs[name].append(next(disturbances) - (carry_over if before == "dp" else 0.0))
        before = name
    return logs


def _differences(logs: dict[str, list[float]], first: str, second: str) -> tuple[float, ...]:
    return tuple(a - b for a, b in zip(logs[first], logs[second], strict=True))


def _one_session(logs: Sequence[float], error_rate: float, *, sequential: bool) -> Comparison:
    session = Session(logs=tuple(logs), is_sequential=sequential)
    return conclude(Evidence(sessions=(session,), unpaired_ratio=1.0), MARGIN, error_rate)


def paired(
    rng: random.Random, noise: Noise, rounds: int, carry_over: float = 0.0
) -> list[Comparison]:
    """One session of three modes: dp and ddp against single, as one family."""
    logs = session_logs(rng, noise, rounds, carry_over)
    return [
        _one_session(_differences(logs, mode, "single"), ERROR_RATE / 2, sequential=False)
        for mode in ("dp", "ddp")
    ]


def ddp_against_dp(
    rng: random.Random, noise: Noise, rounds: int, carry_over: float = 0.0
) -> list[Comparison]:
    """One session of three modes: ddp against dp."""
    logs = session_logs(rng, noise, rounds, carry_over)
    return [_one_session(_differences(logs, "ddp", "dp"), ERROR_RATE, sequential=False)]


def single_against_ddp(
    rng: random.Random, noise: Noise, rounds: int, carry_over: float = 0.0
) -> list[Comparison]:
    """One session of three modes: ddp against single, alone."""
    logs = session_logs(rng, noise, rounds, carry_over)
    return [_one_session(_differences(logs, "ddp", "single"), ERROR_RATE, sequential=False)]


def pooled(rng: random.Random, noise: Noise, sessions: int, between: float) -> list[Comparison]:
    """Sessions of 5 to 10 rounds, whose true ratios differ by a standard deviation `between`."""
    parts = []
    for _ in range(sessions):
        logs = session_logs(rng, noise, rng.randint(5, 10))
        shift = rng.gauss(0, between)
        parts.append(Session(logs=tuple(d + shift for d in _differences(logs, "ddp", "dp"))))
    return [conclude(Evidence(sessions=tuple(parts), unpaired_ratio=1.0), MARGIN, ERROR_RATE)]


def until_decided(
    rng: random.Random, noise: Noise, first_look: int, max_rounds: int = 50
) -> list[Comparison]:
    """Look after every round, and stop at a verdict.

    `first_look` rounds are looked at plainly first (0: never), as by someone who then follows the
    hint and goes on.
    """
    logs = session_logs(rng, noise, max_rounds)
    differences = _differences(logs, "ddp", "dp")
    if first_look:
        result = _one_session(differences[:first_look], ERROR_RATE, sequential=False)
        if result.verdict != "undecided":
            return [result]
    for rounds in range(max(first_look, stats.MIN_ROUNDS), max_rounds + 1):
        result = _one_session(differences[:rounds], ERROR_RATE, sequential=True)
        if result.verdict != "undecided":
            break
    return [result]


def table(rng: random.Random, noise: Noise, rows: int, rounds: int) -> list[Comparison]:
    """A table of several rows, all against one baseline."""
    baseline = noise(rng)
    shared = [next(baseline) for _ in range(rounds)]
    family = []
    for _ in range(rows):
        own = noise(rng)
        logs = [next(own) - theirs for theirs in shared]
        family.append(_one_session(logs, ERROR_RATE / rows, sequential=False))
    return family


def run_of(mode: str, log_throughput: float, **place: object) -> RunRecord:
    """A row of runs.csv."""
    values = {
        "schema_version": 1,
        "status": "ok",
        "mode": mode,
        "effective_mode": mode,
        "device_type": "cuda",
        "num_devices": 1 if mode == "single" else 2,
        "throughput_samples_per_s": 100 * math.exp(log_throughput),
        "session_id": "s1",
        **place,
    }
    return RunRecord(**values)  # type: ignore[arg-type]


def resumed(rng: random.Random, faster: float, *, only_missing: bool) -> list[Comparison]:
    """ddp fails in each of 10 rounds. Then the session is resumed on a faster machine."""
    records = []
    positions = {mode: place for place, mode in enumerate(("dp", "ddp"))}
    for number in range(1, 11):
        for mode, place in positions.items():
            for sitting, shift in ((1, 0.0), (2, faster)):
                fails = sitting == 1 and mode == "ddp"
                is_skipped = sitting == 2 and only_missing and mode == "dp"
                if not fails and not is_skipped:
                    records.append(
                        run_of(
                            mode,
                            rng.gauss(shift, SPREAD / 2),
                            round=number,
                            position=2 * number + place,
                            sitting=sitting,
                            run_id=f"s1-{2 * number + place:03d}-{sitting}",
                        )
                    )
    return _of_ddp(compare(best_sittings(records), None, MARGIN))


def two_times(rng: random.Random, faster: float) -> list[Comparison]:
    """dp in one session and ddp in another, on a machine that is faster by then."""
    records = [
        run_of(
            mode,
            rng.gauss(shift, SPREAD / 2),
            round=number,
            session_id=session,
            run_id=f"{session}-{number}",
        )
        for mode, session, shift in (("dp", "s1", 0.0), ("ddp", "s2", faster))
        for number in range(1, 11)
    ]
    return _of_ddp(compare(records, None, MARGIN))


def _of_ddp(rows: Sequence[Row]) -> list[Comparison]:
    return [
        row.versus_dp.comparison
        for row in rows
        if row.versus_dp is not None and row.versus_dp.comparison is not None
    ]


def repeat(
    experiment: Callable[[random.Random], list[Comparison]], times: int, seed: int = 0
) -> Cell:
    """Many experiments, from one seed."""
    rng = random.Random(seed)
    return tally([experiment(rng) for _ in range(times)])


def page_rows(times: int) -> Iterator[tuple[str, str, str, Cell]]:
    """Every cell of docs/statistics.md: what is compared, its noise, the target, the outcome."""
    for noise_name, noise in NOISES.items():
        cells: dict[str, tuple[str, Callable[[random.Random], list[Comparison]]]] = {
            "one session, 6 rounds, dp and ddp against single": (
                "6 %",
                partial(paired, noise=noise, rounds=6),
            ),
            "one session, 6 rounds, ddp against dp": (
                "6 %",
                partial(ddp_against_dp, noise=noise, rounds=6),
            ),
            "--until decided from the start": (
                "5 %",
                partial(until_decided, noise=noise, first_look=0),
            ),
            "a plain look at 6 rounds, then --until decided": (
                "7 %",
                partial(until_decided, noise=noise, first_look=6),
            ),
            "3 sessions, whose ratios differ by 1.5 %": (
                "6 %",
                partial(pooled, noise=noise, sessions=3, between=0.015),
            ),
            "2 sessions, whose ratios differ by 1.5 %": (
                "6 %",
                partial(pooled, noise=noise, sessions=2, between=0.015),
            ),
        }
        for name, (target, experiment) in cells.items():
            yield name, noise_name, target, repeat(experiment, times)
    pairs = {"ddp against single": single_against_ddp, "ddp against dp": ddp_against_dp}
    for name, compare_two in pairs.items():
        for rounds in (6, 10):
            experiment = partial(
                compare_two, noise=independent, rounds=rounds, carry_over=CARRY_OVER
            )
            label = f"one session, {rounds} rounds, {name}"
            yield label, "the run after dp is 3 % slower", "6 %", repeat(experiment, times)
    for rows in (6, 12):
        experiment = partial(table, noise=independent, rows=rows, rounds=6)
        yield (
            f"a table of {rows} rows, any of them",
            "independent",
            "6 %",
            repeat(experiment, times),
        )
    for faster in (0.01, 0.02):
        machine = f"the machine is {faster:.0%} faster later"
        experiment = partial(resumed, faster=faster, only_missing=False)
        yield "ddp failed, --resume", machine, "6 %", repeat(experiment, times)
        experiment = partial(resumed, faster=faster, only_missing=True)
        yield "ddp failed, --resume-only-missing", machine, "0 %", repeat(experiment, times)
        experiment = partial(two_times, faster=faster)
        yield "dp and ddp in two sessions", machine, "0 %", repeat(experiment, times)


INTRODUCTION = """# How often verdicts are wrong

A verdict `faster` or `slower` is wrong if there is no difference. This page counts such verdicts in
simulated sessions, which are judged by the same functions as real ones. `scripts/coverage` makes it
({times} experiments a cell; a run's throughput has a standard deviation of 2 %, the margin is 2 %).
Smaller simulations are part of the test suite (`tests/simulations.py`).

When a verdict is given, and when it is not:

- **One session**: its rounds are pairs, and from 5 rounds on Student's t gives an interval. The
verdict is about this session: it does not say how the machine will be on another day.
- **Rounds added after a look** (`--until`, `--resume --rounds`): a confidence sequence gives wider
  intervals, which hold however often you look.
- **Three or more sessions**: each session counts once, with its mean. Rounds of one session are too
much alike to be pooled with those of others.
- **Two sessions**: no interval, and a verdict only if both sessions give the same one by
themselves.
- **No round with both sides** (dp in one session, ddp in another): the ratio, and no verdict. A
machine easily differs by some percent from hour to hour, and nothing in the results says by how
much.
- **Several rows**: all verdicts of a table against its baseline hold together, so each interval is
wider (97.5 % each for two rows). ddp against dp is a family of its own, so that up to 10 of 100
tables may have a wrong verdict in one of the two families.

Limits: if 5 % of one mode's runs are 30 % slow by chance, 5 rounds rarely contain one, and no
method sees it. Use more rounds, and repeat the session.

| what is compared | noise | wrong verdicts | target | intervals that hold the truth |
|---|---|---|---|---|
"""


def page(times: int) -> str:
    """docs/statistics.md."""
    lines = []
    for name, noise, target, cell in page_rows(times):
        coverage = "no interval" if cell.coverage is None else f"{cell.coverage:.1%}"
        line = f"| {name} | {noise} | {cell.wrong_share:.1%} | at most {target} | {coverage} |"
        lines.append(line.replace("%", " %").replace("  %", " %"))
        print(lines[-1], flush=True)
    return INTRODUCTION.format(times=f"{times:,}") + "\n".join(lines) + "\n"


def main() -> None:
    """Write docs/statistics.md; the first argument is the number of experiments a cell."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    path = Path(__file__).parents[1] / "docs" / "statistics.md"
    path.write_text(page(times))
    print(f"written: {path}")


if __name__ == "__main__":
    main()
