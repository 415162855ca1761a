"""What a comparison says in sentences, below its table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mgpubench.analysis.compare import Row, Versus
from mgpubench.analysis.findings.catalogue import KINDS, has_table_note
from mgpubench.analysis.stats import MIN_RUNS, Comparison
from mgpubench.format import format_count, format_interval, format_ratio, plain
from mgpubench.report.columns import row_label, row_place

UNPAIRED_NOTE = "unpaired: drift between sessions is not covered"
PAIRED_NOTE = "ratios are over the rounds that both rows have, totals over all runs of a row"

MAX_ADVISED_ROUNDS = 100
"""More rounds are not recommended: the machine is too noisy."""


def sentences_about(rows: Sequence[Row]) -> list[str]:
    """The sentences about the rows of one group, in the order in which they are printed."""
    return [
        *_answers(rows),
        *_hints(rows),
        *_missing_baselines(rows),
        *_unpaired_note(rows),
        *_findings(rows),
        *_row_warnings(rows),
        *_paired_note(rows),
        *_table_notes(rows),
    ]


def _answers(rows: Sequence[Row]) -> Iterator[str]:
    """DDP or DP? `ddp against dp on 2 devices: 1.170x (5 paired rounds): faster`."""
    for row in rows:
        if (versus := row.versus_dp) and versus.comparison:
            yield (
                f"{row_label(row)} against dp on {format_count(row.num_devices, 'device')}: "
                f"{format_ratio(versus.ratio)}x ({_evidence(versus.comparison)}): "
                f"{_conclusion(versus)}"
            )


def _hints(rows: Sequence[Row]) -> Iterator[str]:
    """What to do about undecided rows, except those whose answer about ddp and dp says it."""
    undecided = [
        versus
        for row in rows
        if (versus := row.versus_baseline)
        if versus.verdict == "undecided" and versus != row.versus_dp
    ]
    if undecided:
        hardest = max(undecided, key=lambda versus: versus.rounds_needed or 0)
        yield f"undecided against {hardest.baseline}: {_advice(hardest)}"


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
        yield f"nothing to compare with: there is no run of {baseline or 'single or dp'} here"
    elif alone:
        yield f"no {baseline} on as many devices to compare with: {', '.join(alone)}"


def _unpaired_note(rows: Sequence[Row]) -> Iterator[str]:
    comparisons = [
        versus.comparison
        for row in rows
        for versus in (row.versus_baseline, row.versus_dp)
        if versus
    ]
    if any(comparison and not comparison.paired for comparison in comparisons):
        yield UNPAIRED_NOTE


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
        and (other.mode == "single" or other.num_devices == row.num_devices)
    ]
    return versus.comparison.pairs < max([row.runs, *baselines])


def _table_notes(rows: Sequence[Row]) -> Iterator[str]:
    codes = {code for row in rows for code in row.findings}
    if any(row.group.device_type == "cpu" for row in rows):
        codes.add("cpu-smoke")  # also if all runs have failed
    for kind in KINDS.values():
        if kind.code in codes and kind.table_note:
            yield kind.table_note


def _evidence(comparison: Comparison) -> str:
    if comparison.paired:
        evidence = format_count(comparison.pairs, "paired round")
    else:
        evidence = f"{format_count(comparison.pairs, 'run')} or more a side, unpaired"
    if comparison.interval is None:
        return evidence
    return f"95 % CI {format_interval(comparison.interval)}, {evidence}"


def _conclusion(versus: Versus) -> str:
    if versus.verdict is None:
        return "no verdict for passthrough or oversubscribed devices"
    if versus.verdict == "equivalent":
        return f"equivalent within {versus.margin * 100:g} %"
    if versus.verdict == "undecided":
        return f"undecided, {_advice(versus)}"
    return versus.verdict


def _advice(versus: Versus) -> str:
    if versus.interval is None:
        return f"at least {MIN_RUNS} rounds are needed to tell (--rounds {MIN_RUNS})"
    if versus.rounds_needed is None:
        return "and more rounds would hardly settle it"
    if versus.rounds_needed > MAX_ADVISED_ROUNDS:
        return f"too noisy to settle here: it would take about {versus.rounds_needed} rounds"
    return f"about {versus.rounds_needed} rounds would settle it (--rounds {versus.rounds_needed})"
