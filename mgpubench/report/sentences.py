"""The table of compare in words: titles, cells and sentences, the same on a screen and in Markdown.

Text from result files goes through `plain`: an escape code in a model's name must not reach a
terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from mgpubench.analysis.compare import Row, Versus
from mgpubench.analysis.findings import BUSY_MACHINE, CPU_SMOKE
from mgpubench.analysis.groups import GROUP_KEY, Group
from mgpubench.analysis.metrics import throughput_per_device
from mgpubench.analysis.stats import MIN_RUNS, Interval
from mgpubench.format import (
    UNKNOWN,
    format_count,
    format_interval,
    format_percent,
    format_rate,
    format_ratio,
    plain,
)
from mgpubench.results.session_folder import format_cell

CPU_NOTE = "CPU rows are smoke tests of the tool, not a forecast for GPUs."
UNPAIRED_NOTE = "unpaired: drift between sessions is not covered"
PAIRED_NOTE = "ratios are over the rounds that both rows have, totals over all runs of a row"

MAX_ROUNDS = 100
"""More than that nobody is advised to make: the machine is too noisy."""

MAX_VALUES = 4
"""Of one field that differs; the others are counted."""

_TOLD_IN_TITLE = (
    *("model", "data", "image_size", "precision", "scaling", "batch_per_device", "global_batch"),
    *("channels_last", "compiled", "device_models"),
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: a header of one or two lines, and a cell for each row."""

    header: str
    cells: list[str]
    is_number: bool = True


@dataclass(frozen=True, slots=True)
class Section:
    """One group of equal work: what it is, its table, and what the table says."""

    title: str
    columns: list[Column]
    sentences: list[str]


def describe(rows: Sequence[Row]) -> list[Section]:
    """The sections of a comparison, one for each group of equal work, in the order of the rows."""
    groups = [(group, list(members)) for group, members in groupby(rows, lambda row: row.group)]
    differing = _differing([group for group, _ in groups])
    beyond_title = [name for name in differing if name not in _TOLD_IN_TITLE]
    sections = [
        Section(_title(group, beyond_title), _columns(members), _sentences(members))
        for group, members in groups
    ]
    if differing:
        sections[-1].sentences.append(
            f"The {len(sections)} tables are of different work, and are not divided by each other: "
            + ", ".join(plain(f"{name} ({values})") for name, values in differing.items())
        )
    return sections


def _differing(groups: Sequence[Group]) -> dict[str, str]:
    """The fields in which groups of equal work differ, with the values that each of them has."""
    differing = {}
    for name in GROUP_KEY:
        values = dict.fromkeys(format_cell(getattr(group, name)) or UNKNOWN for group in groups)
        if len(values) > 1:
            shown = list(values)[:MAX_VALUES]
            more = [f"and {len(values) - MAX_VALUES} more"] if len(values) > MAX_VALUES else []
            differing[name] = " / ".join(shown + more)
    return differing


def _title(group: Group, differing: Sequence[str]) -> str:
    """The work in a few words, and beyond them whatever tells this group from the others."""
    parts = [
        group.model,
        group.data and f"{group.data} data",
        group.image_size and f"{group.image_size} px",
        group.precision,
        "channels-last" if group.channels_last else "",
        "compiled" if group.compiled else "",
        group.batch_per_device and f"batch {group.batch_per_device} per device",
        group.global_batch and f"batch {group.global_batch} global",
        group.device_models,
        *(f"{name} {format_cell(getattr(group, name)) or UNKNOWN}" for name in differing),
    ]
    return plain(", ".join(str(part) for part in parts if part)) or "unknown work"


def _columns(rows: Sequence[Row]) -> list[Column]:
    against = [row.versus_baseline for row in rows]
    baseline = next((versus.baseline for versus in against if versus), None) or "baseline"
    ratio_is_speedup = baseline == "single"
    columns = [
        Column("mode", [row_label(row) for row in rows], is_number=False),
        Column("devices", [str(row.num_devices) for row in rows]),
        Column("runs", [_runs(row) for row in rows]),
        Column("total\nsamples/s", [format_rate(row.throughput_samples_per_s) for row in rows]),
        Column("95 % CI of\nthe total", [_rate_interval(row.throughput_ci) for row in rows]),
        Column("samples/s\nper device", [format_rate(_per_device(row)) for row in rows]),
        Column("efficiency", [format_percent(row.scaling_efficiency) for row in rows]),
        Column("speed-up", [format_ratio(row.speedup) for row in rows]),
        Column(
            f"{'speed-up' if ratio_is_speedup else 'ratio'} to\n{baseline}",
            [_ratio(versus) for versus in against],
        ),
        Column("95 % CI of\nthe ratio", [_ratio_interval(versus) for versus in against]),
        Column("verdict", [_verdict(versus) for versus in against], is_number=False),
    ]
    if ratio_is_speedup:
        columns = [column for column in columns if column.header != "speed-up"]
    return [column for column in columns if not _is_left_out(column)]


def _is_left_out(column: Column) -> bool:
    """Few runs have no interval, and a CPU has no efficiency: the bare words would mislead."""
    is_optional = column.header.startswith("95 %") or column.header == "efficiency"
    return is_optional and set(column.cells) == {UNKNOWN}


def row_label(row: Row) -> str:
    """The mode, what it really was where that differs, and its options: `dp (cpu-replicas)`."""
    parts = [row.mode]
    if row.effective_mode not in ("", row.mode):
        parts.append(f"({row.effective_mode})")
    if row.options:
        parts += row.options.split(";")
    return plain(" ".join(parts))


def _runs(row: Row) -> str:
    others = (("failed", row.failed), ("interrupted", row.interrupted))
    return ", ".join([str(row.runs), *(f"{count} {what}" for what, count in others if count)])


def _per_device(row: Row) -> float | None:
    total = row.throughput_samples_per_s
    return None if total is None else throughput_per_device(total, row.num_devices)


def _rate_interval(interval: Interval | None) -> str:
    return UNKNOWN if interval is None else "..".join(map(format_rate, interval))


def _ratio(versus: Versus | None) -> str:
    return "baseline" if versus is None else format_ratio(versus.ratio)


def _ratio_interval(versus: Versus | None) -> str:
    return format_interval(versus.ratio_ci if versus else None)


def _verdict(versus: Versus | None) -> str:
    if versus is None or versus.verdict is None:
        return UNKNOWN
    return versus.verdict if versus.paired else f"{versus.verdict} (unpaired)"


def _sentences(rows: Sequence[Row]) -> list[str]:
    sentences = [
        _answer(row, versus)
        for row in rows
        if (versus := row.versus_dp) and versus.ratio is not None
    ]
    sentences += _hint(rows)
    sentences += _missing_baseline(rows)
    comparisons = [versus for row in rows for versus in (row.versus_baseline, row.versus_dp)]
    if any(versus and versus.paired is False for versus in comparisons):
        sentences.append(UNPAIRED_NOTE)
    sentences += [
        f"findings of {_place(row)}: {', '.join(codes)}"
        for row in rows
        if (codes := [_finding(code, row) for code in row.findings if code != CPU_SMOKE])
    ]
    sentences += [
        f"most runs of {_place(row)} were disturbed by other processes: make them again on a "
        "quiet machine before you believe a ratio"
        for row in rows
        if 2 * row.finding_runs.get(BUSY_MACHINE, 0) > row.runs
    ]
    if any(_has_fewer_pairs(row, rows) for row in rows):
        sentences.append(PAIRED_NOTE)
    if any(row.group.device_type == "cpu" for row in rows):
        sentences.append(CPU_NOTE)
    return sentences


def _finding(code: str, row: Row) -> str:
    """A code, with the number of runs that have it where those are not all."""
    count = row.finding_runs.get(code, row.runs)
    return plain(code) if count == row.runs else f"{plain(code)} ({count} of {row.runs} runs)"


def _has_fewer_pairs(row: Row, rows: Sequence[Row]) -> bool:
    """True if a total is over more runs than the ratio, be it this row's or its baseline's."""
    versus = row.versus_baseline
    if versus is None or not versus.paired:
        return False
    baselines = [
        other.runs
        for other in rows
        if other.versus_baseline is None
        and (other.mode == "single" or other.num_devices == row.num_devices)
    ]
    return versus.pairs < max([row.runs, *baselines])


def _answer(row: Row, versus: Versus) -> str:
    """DDP or DP? `ddp against dp on 2 devices: 1.170x (5 paired rounds): faster`."""
    return (
        f"{row_label(row)} against dp on {format_count(row.num_devices, 'device')}: "
        f"{format_ratio(versus.ratio)}x ({_evidence(versus)}): {_conclusion(versus)}"
    )


def _hint(rows: Sequence[Row]) -> list[str]:
    """What to do about undecided rows, beyond those that have an answer about ddp and dp."""
    undecided = [
        versus
        for row in rows
        if (versus := row.versus_baseline)
        if versus.verdict == "undecided" and versus != row.versus_dp
    ]
    if not undecided:
        return []
    hardest = max(undecided, key=lambda versus: versus.rounds_needed or 0)
    return [f"undecided against {hardest.baseline}: {_advice(hardest)}"]


def _missing_baseline(rows: Sequence[Row]) -> list[str]:
    """Say why a whole column is empty, or some rows of it."""
    wanted = {row.versus_baseline.baseline for row in rows if row.versus_baseline}
    if len(wanted) != 1:
        return []
    (baseline,) = wanted
    if all(row.versus_baseline is not None for row in rows):
        return [f"nothing to compare with: there is no run of {baseline or 'single or dp'} here"]
    alone = [
        _place(row)
        for row in rows
        if row.runs and row.versus_baseline is not None and row.versus_baseline.ratio is None
    ]
    return (
        [f"no {baseline} on as many devices to compare with: {', '.join(alone)}"] if alone else []
    )


def _place(row: Row) -> str:
    return f"{row_label(row)} on {format_count(row.num_devices, 'device')}"


def _evidence(versus: Versus) -> str:
    if versus.paired:
        evidence = format_count(versus.pairs, "paired round")
    else:
        evidence = f"{format_count(versus.pairs, 'run')} or more a side, unpaired"
    if versus.ratio_ci is None:
        return evidence
    return f"95 % CI {format_interval(versus.ratio_ci)}, {evidence}"


def _conclusion(versus: Versus) -> str:
    if versus.verdict is None:
        return "no verdict for passthrough or oversubscribed devices"
    conclusion: str = versus.verdict
    if versus.verdict == "equivalent":
        conclusion += f" within {versus.margin * 100:g} %"
    if versus.verdict == "undecided":
        conclusion += f", {_advice(versus)}"
    return conclusion


def _advice(versus: Versus) -> str:
    if versus.ratio_ci is None:
        return f"at least {MIN_RUNS} rounds are needed to tell (--rounds {MIN_RUNS})"
    if versus.rounds_needed is None:
        return "and more rounds would hardly settle it"
    if versus.rounds_needed > MAX_ROUNDS:
        return f"too noisy to settle here: it would take about {versus.rounds_needed} rounds"
    return f"about {versus.rounds_needed} rounds would settle it (--rounds {versus.rounds_needed})"
