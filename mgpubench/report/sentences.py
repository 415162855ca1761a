"""What a comparison says in sentences, below its table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType

from mgpubench.analysis.comparison import Comparison
from mgpubench.analysis.findings.catalogue import KINDS, has_table_note
from mgpubench.analysis.row import SINGLE, Row, Versus
from mgpubench.analysis.stats import MIN_ROUNDS, MIN_SESSIONS
from mgpubench.config.preset import STANDARD
from mgpubench.config.types import DEFAULT_MARGIN, DEFAULT_MODES
from mgpubench.format import (
    format_confidence,
    format_count,
    format_interval,
    format_percent,
    format_ratio,
    plain,
)
from mgpubench.report.columns import row_label, row_place
from mgpubench.report.commands import Folders, command_to_resume, command_to_run

PAIRED_NOTE = "ratios are over the rounds that both rows have, totals over all runs of a row"
FAMILY_NOTE = (
    "the verdicts against {baseline} are all right at once in 95 % of tables, so each interval "
    "is wider"
)
OWN_FAMILY = "; ddp against dp holds by itself"

MAX_ADVISED_ROUNDS = 100
"""More rounds are not recommended: the machine is too noisy."""

NO_FOLDERS: Folders = MappingProxyType({})


def sentences_about(rows: Sequence[Row], folders: Folders = NO_FOLDERS) -> list[str]:
    """The sentences about the rows of one group, in the order in which they are printed."""
    return [
        *_answers(rows, folders),
        *_hints(rows, folders),
        *_missing_baselines(rows),
        *_unpaired(rows),
        *_disagreements(rows),
        *_noise_floors(rows),
        *_findings(rows),
        *_row_warnings(rows),
        *_paired_note(rows),
        *_family_note(rows),
        *_table_notes(rows),
    ]


def _answers(rows: Sequence[Row], folders: Folders) -> Iterator[str]:
    """One technique or another, and one variant or another, as a sentence."""
    for row, versus in told(rows):
        yield answer(row, versus, folders)


def told(rows: Sequence[Row]) -> list[tuple[Row, Versus]]:
    """The rows that a sentence tells something about, with what they are compared with."""
    against = ((row, _answer(row)) for row in rows)
    return [(row, versus) for row, versus in against if versus and is_paired(versus)]


def is_paired(versus: Versus) -> bool:
    """True if a row and its baseline have rounds in common."""
    return versus.comparison is not None and versus.comparison.paired


def answer(row: Row, versus: Versus, folders: Folders) -> str:
    """A row against another one, with the evidence and the verdict. They have rounds in common."""
    assert versus.comparison is not None
    return (
        f"{row_label(row)} against {plain(versus.baseline)} on "
        f"{format_count(row.num_devices, 'device')}: {format_ratio(versus.ratio)}x "
        f"({_evidence(versus.comparison)}): {_conclusion(versus, folders)}"
    )


def caveats(rows: Sequence[Row]) -> list[str]:
    """The sentences without which an answer would mislead."""
    return [*_disagreements(rows), *_row_warnings(rows), *_table_notes(rows)]


def _answer(row: Row) -> Versus | None:
    """The comparison that a sentence tells: DDP with DP, and a later mode with one of the two."""
    if row.variant:
        return row.versus_baseline
    if row.mode in DEFAULT_MODES:
        return row.versus_dp
    versus = row.versus_baseline
    return versus if versus and versus.baseline != SINGLE.name else None


def _hints(rows: Sequence[Row], folders: Folders) -> Iterator[str]:
    """What to do about undecided rows, except those whose answer says it."""
    undecided = [
        versus
        for row in rows
        if (versus := row.versus_baseline)
        if versus.verdict == "undecided" and versus != _answer(row)
    ]
    if undecided:
        hardest = max(undecided, key=_difficulty)
        yield f"undecided against {plain(hardest.baseline)}: {_advice(hardest, folders)}"


def _difficulty(versus: Versus) -> float:
    """Rounds needed; a case that no number of rounds would settle is the hardest."""
    return float("inf") if versus.rounds_needed is None else versus.rounds_needed


def _missing_baselines(rows: Sequence[Row]) -> Iterator[str]:
    """Why a whole column is empty, or some rows of it."""
    wanted = {row.versus_baseline.baseline for row in rows if row.versus_baseline}
    if len(wanted) != 1:
        return
    (baseline,) = wanted
    alone = [
        row_place(row)
        for row in rows
        if row.runs and row.versus_baseline and row.versus_baseline.ratio is None
    ]
    if all(row.versus_baseline is not None for row in rows):
        is_ddp = all(row.mode == "ddp" for row in rows)
        name = plain(baseline) or ("single or dp" if is_ddp else "single, dp or ddp")
        yield f"nothing to compare with: there is no run of {name} here"
    elif alone:
        yield f"no {plain(baseline)} on as many devices to compare with: {', '.join(alone)}"


def _unpaired(rows: Sequence[Row]) -> Iterator[str]:
    """Ratios without a verdict, the reason, and the command that would give one."""
    unpaired = [row for row in rows if _has_unpaired_ratio(row)]
    if not unpaired:
        return
    names = ", ".join(dict.fromkeys(row_place(row) for row in unpaired))
    # The command line of a variant is not in its row.
    remedy = (
        "mgpubench run --resume repeats their rounds as a whole"
        if any(row.variant for row in unpaired)
        else f"to get one: {command_to_run(_to_measure(rows))}"
    )
    yield (
        f"no verdict for {names}: no round ran both in one call, and the same machine may differ "
        f"by several percent from hour to hour; {remedy}"
    )


def _has_unpaired_ratio(row: Row) -> bool:
    return any(
        versus and versus.comparison and not versus.comparison.paired and versus.is_judged
        for versus in (row.versus_baseline, row.versus_dp)
    )


def _to_measure(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.runs and row.is_judged] or list(rows)


def _disagreements(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        for versus in dict.fromkeys((row.versus_baseline, row.versus_dp)):
            if versus and versus.comparison and versus.comparison.disagree:
                ratios = versus.comparison.session_ratios
                yield (
                    f"sessions disagree about {row_place(row)} against {plain(versus.baseline)}: "
                    f"from {format_ratio(ratios[0])}x to {format_ratio(ratios[-1])}x, by more than "
                    "chance; compare them one by one"
                )


def _noise_floors(rows: Sequence[Row]) -> Iterator[str]:
    """What an A/A test shows: the smallest difference that can be seen here."""
    for row in rows:
        versus = row.versus_baseline
        comparison = versus.comparison if versus and row.variant.startswith("aa-") else None
        if comparison and comparison.noise_floor is not None:
            yield (
                f"noise floor of {row.mode} on {format_count(row.num_devices, 'device')}: "
                f"{comparison.pairs} rounds find a difference of "
                f"{format_percent(comparison.noise_floor)} in 80 of 100 cases, and a smaller one "
                "more rarely"
            )


def _findings(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if codes := [_finding(code, row) for code in row.findings if not has_table_note(code)]:
            yield f"findings of {row_place(row)}: {', '.join(codes)}"


def _finding(code: str, row: Row) -> str:
    """A code, with the number of runs that have it if those are not all."""
    count = row.finding_runs.get(code, row.runs)
    return plain(code) if count == row.runs else f"{plain(code)} ({count} of {row.runs} runs)"


def _row_warnings(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        for code, count in row.finding_runs.items():
            kind = KINDS.get(code)
            if kind and kind.row_warning and 2 * count > row.runs:
                yield f"{row_place(row)}: {kind.row_warning}"


def _paired_note(rows: Sequence[Row]) -> Iterator[str]:
    if any(_has_fewer_pairs(row, rows) for row in rows):
        yield PAIRED_NOTE


def _has_fewer_pairs(row: Row, rows: Sequence[Row]) -> bool:
    """True if a total is over more runs than the ratio, in this row or its baseline."""
    versus = row.versus_baseline
    if versus is None or versus.comparison is None or not versus.comparison.paired:
        return False
    baselines = [
        other.runs
        for other in rows
        if other.versus_baseline is None
        and (
            other.mode == "single"
            or (other.num_devices, other.num_nodes) == (row.num_devices, row.num_nodes)
        )
    ]
    return versus.comparison.pairs < max([row.runs, *baselines])


def _family_note(rows: Sequence[Row]) -> Iterator[str]:
    """Why intervals of several rows are wider than those of one."""
    shared = [
        row.versus_baseline
        for row in rows
        if row.versus_baseline
        and row.versus_baseline.comparison
        and (row.versus_baseline.comparison.confidence or 0) > 0.951
    ]
    if shared:
        is_apart = any(row.versus_dp and row.versus_dp != row.versus_baseline for row in rows)
        own = OWN_FAMILY if is_apart else ""
        yield FAMILY_NOTE.format(baseline=plain(shared[0].baseline)) + own


def _table_notes(rows: Sequence[Row]) -> Iterator[str]:
    codes = {code for row in rows for code in row.findings}
    if any(row.group.device_type == "cpu" for row in rows):
        codes.add("cpu-smoke")  # also if all runs have failed
    for kind in KINDS.values():
        if kind.code in codes and kind.table_note:
            yield kind.table_note


def _evidence(comparison: Comparison) -> str:
    """What a ratio is based on: `95 % CI 1.120..1.220, 6 paired rounds of one session`."""
    rounds = format_count(comparison.pairs, "paired round")
    count = len(comparison.session_ratios)
    scope = "of one session" if count == 1 else f"in {count} sessions"
    parts = [f"{rounds} {scope}"]
    if comparison.interval and comparison.confidence:
        confidence = format_confidence(comparison.confidence)
        parts.insert(0, f"{confidence} CI {format_interval(comparison.interval)}")
    if comparison.method == "sequence":
        parts.append("rounds were added")
    if comparison.method == "both":
        parts.append(" and ".join(f"{format_ratio(ratio)}x" for ratio in comparison.session_ratios))
    return ", ".join(parts)


def _conclusion(versus: Versus, folders: Folders) -> str:
    if versus.verdict is None:
        return "no verdict for passthrough or oversubscribed devices"
    if versus.verdict == "undecided":
        return f"undecided, {_advice(versus, folders)}"
    within = f" within {versus.margin * 100:g} %" if versus.verdict == "equivalent" else ""
    in_both = versus.comparison is not None and versus.comparison.method == "both"
    return f"{versus.verdict}{within}{' in both sessions' if in_both else ''}"


def _advice(versus: Versus, folders: Folders) -> str:
    """What would settle an undecided comparison."""
    comparison = versus.comparison
    if comparison is None:
        return "nothing to compare with"
    if comparison.method == "both":
        return (
            "since the two sessions do not give the same verdict; with "
            f"{MIN_SESSIONS} sessions there is an interval over all of them"
        )
    if comparison.method == "sessions":
        return "more sessions would narrow the interval"
    if comparison.pairs < MIN_ROUNDS:
        return f"at least {MIN_ROUNDS} rounds are needed to tell (--rounds {STANDARD.rounds})"
    return _advice_on_rounds(versus, comparison, folders)


def _advice_on_rounds(versus: Versus, comparison: Comparison, folders: Folders) -> str:
    """How many rounds would settle the comparison of one session, and how to get them."""
    needed = comparison.rounds_needed
    if needed is None:
        return "and more rounds would hardly settle it"
    if needed > MAX_ADVISED_ROUNDS:
        return f"too noisy to settle here: it would take about {needed} rounds"
    # `run` decides with the default margin and baseline only.
    until = versus.is_default and versus.margin == DEFAULT_MARGIN
    command = command_to_resume(comparison.session_ids[0], folders, needed, until=until)
    return f"about {needed} rounds would settle it: {command}"
