"""What may be said about the ratio of two throughputs, from the rounds that both sides have.

Three cases, by where the rounds are from:

- one session: its rounds are the observations, paired, with Student's t. If rounds were added after
  a look, a confidence sequence takes its place.
- three or more sessions: each session's mean log ratio is one observation, with Student's t. Rounds
  of one session are more alike than rounds of different sessions, so they must not be pooled.
- two sessions: no interval, and a verdict only if both sessions' own intervals give it.

Without rounds in common there is a ratio and no verdict: nothing says how different the machine was
at the two times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mgpubench.analysis import stats
from mgpubench.analysis.stats import Interval, Verdict

MAX_SESSIONS_TO_TEST = 10
"""Up to this many sessions are tested for disagreement."""

Method = Literal["rounds", "sequence", "sessions", "both", "unpaired"]
"""How a verdict is found: from the rounds of one session, from a confidence sequence over them,
from the means of sessions, from both of two sessions, or not at all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """The log ratios of one session, one for each round that both sides have."""

    logs: tuple[float, ...]
    is_sequential: bool = False
    """True if rounds may have been added after a look at the result."""
    session_id: str = ""

    @property
    def mean(self) -> float:
        """Mean log ratio."""
        return stats.mean(self.logs)

    def interval(self, error_rate: float) -> Interval | None:
        """The interval from this session alone; None if it has too few rounds."""
        if len(self.logs) < stats.MIN_ROUNDS:
            return None
        spread = math.sqrt(stats.variance(self.logs))
        half_width = stats.sequence_half_width if self.is_sequential else stats.t_half_width
        return stats.to_interval(self.mean, half_width(spread, len(self.logs), error_rate))


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """All that bears on one ratio."""

    sessions: tuple[Session, ...]
    """The sessions with rounds that both sides have; none if unpaired."""
    unpaired_ratio: float
    """The ratio of the two geometric means, used without such rounds."""

    @property
    def can_decide(self) -> bool:
        """True if there is enough for an interval or a verdict."""
        if len(self.sessions) >= stats.MIN_SESSIONS:
            return True
        enough = [len(session.logs) >= stats.MIN_ROUNDS for session in self.sessions]
        return bool(enough) and all(enough)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """How much faster one configuration is than another, and what may be said about it."""

    method: Method
    ratio: float
    interval: Interval | None
    confidence: float | None
    """Of the interval; None without one."""
    pairs: int
    """Rounds in common."""
    session_ratios: tuple[float, ...]
    """The ratio in each session, ascending."""
    session_ids: tuple[str, ...]
    """The sessions with rounds in common, in alphabetical order."""
    disagree: bool
    """True if the sessions differ by more than the margin, and not by chance."""
    verdict: Verdict | None
    """None if the sides have no rounds in common."""
    rounds_needed: int | None
    """For an undecided verdict in one session: rounds that would settle it; None if no number of
    rounds would."""
    noise_floor: float | None
    """In one session: the relative difference that as many rounds find in 80 of 100 cases."""

    @property
    def paired(self) -> bool:
        """True if the sides have rounds in common."""
        return self.method != "unpaired"


def conclude(evidence: Evidence, margin: float, error_rate: float) -> Comparison:
    """Judge a ratio.

    Args:
        evidence: what was measured.
        margin: the relative difference that counts, e.g. 0.02.
        error_rate: how often the interval may miss the truth, e.g. 0.05.
    """
    sessions = sorted(evidence.sessions, key=lambda session: session.logs)
    if not sessions:
        return _unpaired(evidence.unpaired_ratio)
    interval, verdict = _interval_and_verdict(sessions, margin, error_rate)
    means = sorted(session.mean for session in sessions)
    return Comparison(
        method=_method(sessions),
        ratio=math.exp(stats.mean(means)),
        interval=interval,
        confidence=1 - error_rate if interval else None,
        pairs=sum(len(session.logs) for session in sessions),
        session_ratios=tuple(map(math.exp, means)),
        session_ids=tuple(sorted(session.session_id for session in sessions)),
        disagree=_disagree(sessions, margin),
        verdict=verdict,
        rounds_needed=_rounds_needed(sessions, verdict, margin, error_rate),
        noise_floor=_noise_floor(sessions),
    )


def _unpaired(ratio: float) -> Comparison:
    return Comparison(
        method="unpaired",
        ratio=ratio,
        interval=None,
        confidence=None,
        pairs=0,
        session_ratios=(),
        session_ids=(),
        disagree=False,
        verdict=None,
        rounds_needed=None,
        noise_floor=None,
    )


def _method(sessions: Sequence[Session]) -> Method:
    if len(sessions) >= stats.MIN_SESSIONS:
        return "sessions"
    if len(sessions) == 2:
        return "both"
    return "sequence" if sessions[0].is_sequential else "rounds"


def _interval_and_verdict(
    sessions: Sequence[Session], margin: float, error_rate: float
) -> tuple[Interval | None, Verdict]:
    if len(sessions) == 2:
        first, second = (stats.judge(each.interval(error_rate), margin) for each in sessions)
        return None, first if first == second else "undecided"
    if len(sessions) == 1:
        interval = sessions[0].interval(error_rate)
    else:
        interval = interval_of_means([session.mean for session in sessions], error_rate)
    return interval, stats.judge(interval, margin)


def interval_of_means(means: Sequence[float], error_rate: float) -> Interval | None:
    """Student's t interval from one log value per session; None if there are too few."""
    if len(means) < stats.MIN_SESSIONS:
        return None
    spread = math.sqrt(stats.variance(means))
    half_width = stats.t_half_width(spread, len(means), error_rate)
    return stats.to_interval(stats.mean(means), half_width)


def _disagree(sessions: Sequence[Session], margin: float) -> bool:
    # With more sessions the test gives too many false alarms: 3 % for 30, 12 % for 100. Their
    # spread is in the interval over their means anyway.
    if len(sessions) > MAX_SESSIONS_TO_TEST:
        return False
    means = [session.mean for session in sessions]
    if max(means) - min(means) <= math.log1p(margin):
        return False
    chance = stats.means_differ_by_chance([session.logs for session in sessions])
    return chance is not None and chance < stats.DISAGREEMENT


def _noise_floor(sessions: Sequence[Session]) -> float | None:
    if len(sessions) > 1 or len(sessions[0].logs) < stats.MIN_ROUNDS:
        return None
    return stats.noise_floor(sessions[0].logs)


def _rounds_needed(
    sessions: Sequence[Session], verdict: Verdict, margin: float, error_rate: float
) -> int | None:
    if verdict != "undecided" or len(sessions) > 1:
        return None
    if len(sessions[0].logs) < stats.MIN_ROUNDS:
        return stats.MIN_ROUNDS
    return stats.rounds_to_decide(sessions[0].logs, margin, error_rate)
