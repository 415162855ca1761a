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

MAX_PAIRS = 4
"""So many are named in one sentence."""

MIN_TIMES = 2.0
"""From this ratio on people say `times` and not `percent`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One comparison, for somebody who does not know the tool."""

    work: str
    """The title of its table."""
    pair: str
    """The two sides: `ddp against dp`; empty if there is no other one."""
    num_devices: int
    sentence: str
    """As `compare` prints it."""
    verdict: str
    winner: str
    """Who is faster, and by how much."""
    certainty: str
    """Whether it is sure, and why."""


def answers_of(rows: Sequence[Row], works: Sequence[str], folders: Folders) -> list[Answer]:
    """The answers of all groups of equal work, whose titles are `works`.

    A group without a comparison of two techniques or variants is answered against its baseline.
    """
    groups = [list(members) for _, members in groupby(rows, lambda row: row.group)]
    return [
        found
        for group, work in zip(groups, works, strict=True)
        for found in _answers_of_group(group, work, folders)
    ]


def headline(answers: Sequence[Answer]) -> str:
    """Several answers in one sentence: `ddp against dp: faster on 4 and 8 devices`.

    Empty for a single one, which is a sentence itself.
    """
    if len(answers) < 2:
        return ""
    is_one_work = len({each.work for each in answers}) == 1
    pairs = dict.fromkeys(each.pair for each in answers if each.pair)
    parts = [
        f"{pair}: {_verdicts([each for each in answers if each.pair == pair], is_one_work)}"
        for pair in list(pairs)[:MAX_PAIRS]
    ]
    more = [f"and {len(pairs) - MAX_PAIRS} more"] if len(pairs) > MAX_PAIRS else []
    return "; ".join(parts + more)


def _verdicts(answers: Sequence[Answer], is_one_work: bool) -> str:
    """The verdicts of one pair, each with the numbers of devices, or with their count."""
    parts = []
    for verdict in dict.fromkeys(each.verdict for each in answers):
        alike = [each for each in answers if each.verdict == verdict]
        devices = [str(each.num_devices) for each in alike]
        place = (
            f"on {_listed(devices)} {'device' if devices == ['1'] else 'devices'}"
            if is_one_work
            else f"in {format_count(len(alike), 'comparison')}"
        )
        parts.append(f"{verdict} {place}")
    return ", ".join(parts)


def _listed(words: Sequence[str]) -> str:
    """`2, 4 and 8`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def caveats_of(rows: Sequence[Row]) -> list[str]:
    """What keeps an answer from being believed, each once."""
    groups = [list(members) for _, members in groupby(rows, lambda row: row.group)]
    return list(dict.fromkeys(sentence for group in groups for sentence in caveats(group)))


def _answers_of_group(rows: list[Row], work: str, folders: Folders) -> Iterator[Answer]:
    compared = told(rows) or [
        (row, row.versus_baseline)
        for row in rows
        if row.versus_baseline and is_paired(row.versus_baseline)
    ]
    for row, versus in compared:
        assert versus.comparison is not None
        yield Answer(
            work=work,
            pair=f"{row_label(row)} against {plain(versus.baseline)}",
            num_devices=row.num_devices,
            sentence=answer(row, versus, folders),
            verdict=versus.verdict or NO_VERDICT,
            winner=_winner(row, versus),
            certainty=_certainty(versus, versus.comparison),
        )
    if not compared:
        yield _without_comparison(rows, work, folders)


def _without_comparison(rows: list[Row], work: str, folders: Folders) -> Answer:
    return Answer(
        work=work,
        pair="",
        num_devices=rows[0].num_devices,
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
