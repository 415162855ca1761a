"""The figures of pools as the statistics take them: logarithms, session by session."""

from __future__ import annotations

from collections import defaultdict
from math import log

from mgpubench.analysis import stats
from mgpubench.analysis.comparison import Evidence, Session, interval_of_means
from mgpubench.analysis.pools import Pool
from mgpubench.analysis.stats import Interval


def interval_of_throughput(pool: Pool) -> Interval | None:
    """The 95 % interval of a row's throughput: over its runs, or over the means of its sessions."""
    means = pool.session_means
    if len(means) > 1:
        return interval_of_means(means, stats.ERROR_RATE)
    logs = tuple(map(log, pool.throughputs))
    return Session(logs=logs).interval(stats.ERROR_RATE) if logs else None


def evidence_of(changed: Pool, baseline: Pool) -> Evidence:
    """The log ratios of two pools in the rounds that both have, session by session."""
    sequential = changed.sequential_sessions | baseline.sequential_sessions
    sessions = [
        Session(logs=tuple(sorted(logs)), is_sequential=name in sequential, session_id=name)
        for name, logs in _logs_by_session(changed, baseline).items()
    ]
    return Evidence(
        sessions=tuple(sessions),
        unpaired_ratio=stats.geometric_mean(changed.throughputs)
        / stats.geometric_mean(baseline.throughputs),
    )


def _logs_by_session(changed: Pool, baseline: Pool) -> dict[str, list[float]]:
    ours, theirs = changed.by_round, baseline.by_round
    logs: defaultdict[str, list[float]] = defaultdict(list)
    for key in ours:
        if key in theirs:
            session = key[0]
            logs[session].append(log(ours[key] / theirs[key]))
    return logs
