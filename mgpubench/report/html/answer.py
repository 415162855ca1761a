"""The top of the page: the sentence that `compare` prints, and what it means in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from mgpubench.analysis.comparison import Comparison
from mgpubench.analysis.row import Row, Versus
from mgpubench.analysis.stats import MIN_ROUNDS
from mgpubench.format import (
    format_confidence,
    format_count,
    format_interval,
    format_percent,
    format_ratio,
    plain,
)
from mgpubench.report.columns import row_label
from mgpubench.report.commands import Folders
from mgpubench.report.sentences import answer, caveats, is_paired, sentences_about, told

NO_VERDICT = "no verdict"

MIN_TIMES = 2.0
"""From this ratio on people say `times` and not `percent`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One comparison, for somebody who does not know the tool."""

    sentence: str
    """As `compare` prints it."""
    verdict: str
    winner: str
    """Who is faster, and by how much."""
    certainty: str
    """Whether it is sure, and why."""


def answers_of(rows: Sequence[Row], folders: Folders) -> list[Answer]:
    """The answers of all groups of equal work.

    A group without a comparison of two techniques or variants is answered against its baseline.
    """
    answers: list[Answer] = []
    for _, members in groupby(rows, lambda row: row.group):
        answers += _answers_of_group(list(members), folders)
    return answers


def caveats_of(rows: Sequence[Row]) -> list[str]:
    """What keeps an answer from being believed, each once."""
    groups = [list(members) for _, members in groupby(rows, lambda row: row.group)]
    return list(dict.fromkeys(sentence for group in groups for sentence in caveats(group)))


def _answers_of_group(rows: list[Row], folders: Folders) -> Iterator[Answer]:
    compared = told(rows) or [
        (row, row.versus_baseline)
        for row in rows
        if row.versus_baseline and is_paired(row.versus_baseline)
    ]
    for row, versus in compared:
        assert versus.comparison is not None
        yield Answer(
            sentence=answer(row, versus, folders),
            verdict=versus.verdict or NO_VERDICT,
            winner=_winner(row, versus),
            certainty=_certainty(versus, versus.comparison),
        )
    if not compared:
        yield _without_comparison(rows, folders)


def _without_comparison(rows: list[Row], folders: Folders) -> Answer:
    return Answer(
        sentence=next(iter(sentences_about(rows, folders)), "there is nothing to compare"),
        verdict=NO_VERDICT,
        winner="Unknown: no two rows were measured in turn.",
        certainty="No. One row alone says how fast it was, and not whether another is faster.",
    )


def _winner(row: Row, versus: Versus) -> str:
    """Who trains more samples per second, as a person would say it."""
    name, other = row_label(row), plain(versus.baseline)
    place = f"on {format_count(row.num_devices, 'device')}"
    amount = f"trains {_amount(versus.ratio or 1.0, other)}"
    return {
        "faster": f"{name}. It {amount}, {place}.",
        "slower": f"{other}. {name} {amount}, {place}.",
        "equivalent": (
            f"Neither. {name} and {other} differ by less than {versus.margin * 100:g} %, {place}."
        ),
        "undecided": f"Not known yet. So far {name} {amount}, {place}.",
    }.get(versus.verdict or "", f"Not judged. {name} {amount}, {place}.")


def _amount(ratio: float, other: str) -> str:
    """How many samples per second, against another one."""
    times = f"{format_ratio(ratio)} times as many"
    if ratio >= MIN_TIMES:
        return f"{times} samples per second as {other}"
    percent = f"{format_percent(abs(ratio - 1))} {'more' if ratio >= 1 else 'fewer'}"
    return f"{percent} samples per second than {other} ({times})"


def _certainty(versus: Versus, comparison: Comparison) -> str:
    """Whether the verdict can be believed: it is about these sessions, and never about another."""
    if versus.verdict is None:
        return "No: these devices do not measure the technique."
    if versus.verdict == "undecided":
        return _doubt(comparison)
    if comparison.method == "both":
        return "Yes, for these two sessions: each of them alone gives this verdict."
    beyond = {
        "faster": "is above 1",
        "slower": "is below 1",
        "equivalent": f"is within {versus.margin * 100:g} % of 1",
    }[versus.verdict]
    return f"Yes, {_scope(comparison)}: the whole {_interval(comparison)} {beyond}."


def _doubt(comparison: Comparison) -> str:
    if comparison.interval:
        return f"No: the {_interval(comparison)} contains 1."
    if comparison.method == "both":
        return "No: the two sessions do not give the same verdict."
    return (
        f"No: {format_count(comparison.pairs, 'round')} cannot show it, and {MIN_ROUNDS} are the "
        "least that can."
    )


def _interval(comparison: Comparison) -> str:
    confidence = format_confidence(comparison.confidence or 0)
    return f"{confidence} confidence interval of the ratio ({format_interval(comparison.interval)})"


def _scope(comparison: Comparison) -> str:
    if comparison.method == "sessions":
        return f"over {len(comparison.session_ratios)} sessions"
    return "for this session (the machine may behave differently on another day)"
