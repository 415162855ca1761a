"""Several sessions of the same work over time, with the versions where they change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from mgpubench.analysis import stats
from mgpubench.analysis.groups import Group
from mgpubench.analysis.pairs import interval_of_throughput
from mgpubench.analysis.pools import Pool
from mgpubench.analysis.stats import Interval
from mgpubench.format import UNKNOWN, format_rate, plain
from mgpubench.report.plots.kind import Kind
from mgpubench.report.plots.labels import Label, put_labels
from mgpubench.report.plots.measured import Measured, Panel, Series
from mgpubench.report.plots.style import FAINT, RIGHT, looks
from mgpubench.results.schema import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VERSIONS = {
    "torch_version": "torch",
    "cuda_version": "CUDA",
    "nccl_version": "NCCL",
    "driver_version": "driver",
    "python_version": "Python",
    "mgpubench_version": "mgpubench",
    "environment": "environment",
}
"""The columns that may change from session to session in the same work, and their names."""

MAX_TICKS = 12
MAX_CHANGES = 8
"""So many changes of versions are drawn."""


def _panels(measured: Measured) -> Sequence[Panel]:
    """Groups that differ in versions alone, as one panel each."""
    works: dict[Group, list[Panel]] = {}
    for panel in measured.panels:
        works.setdefault(_unversioned(panel.group), []).append(panel)
    merged = [_merge(panels) for panels in works.values()]
    return [panel for panel in merged if len(_sessions(panel)) > 1]


def _unversioned(group: Group) -> Group:
    return replace(
        group,
        torch_version="",
        cuda_version="",
        nccl_version="",
        driver_version="",
        python="",
        environment="",
    )


def _merge(panels: Sequence[Panel]) -> Panel:
    """The rows of all, each with the runs of all."""
    rows: dict[tuple[object, ...], Series] = {}
    for panel in panels:
        for each in panel.series:
            key = (each.row.mode, each.row.num_devices, each.row.num_nodes, each.kind)
            if known := rows.get(key):
                runs = [*known.pool.runs, *each.pool.runs]
                each = Series(each.row, replace(each.pool, runs=runs))
            rows[key] = each
    title = _in_common([panel.title for panel in panels])
    return replace(panels[-1], title=title, series=tuple(rows.values()))


def _in_common(titles: Sequence[str]) -> str:
    """The parts that all titles of groups have: the work without what changes."""
    parts = [title.split(", ") for title in titles]
    return ", ".join(part for part in parts[-1] if all(part in each for each in parts))


def _sessions(panel: Panel) -> list[str]:
    """The sessions with a run that succeeded, the oldest first: their names begin with the time."""
    return sorted({run.session_id for each in panel.series for run in each.pool.ok_runs})


def _draw(axes: Axes, panel: Panel, _: Measured) -> None:
    sessions = _sessions(panel)
    measured = [each for each in panel.series if each.pool.throughputs]
    shapes = looks([(each.row.mode, (each.kind, each.row.num_devices)) for each in measured])
    labels = []
    for each, look in zip(measured, shapes, strict=True):
        points = _points(each.pool, sessions)
        x, y = [place for place, _, _ in points], [rate for _, rate, _ in points]
        axes.errorbar(
            x,
            y,
            yerr=_whiskers(points),
            color=look.colour,
            marker=look.marker,
            markersize=5,
            linewidth=1.2,
            capsize=3,
        )
        labels.append(Label(x[-1], y[-1], each.label, look, each.row.mode, each.devices))
    _mark_changes(axes, panel, sessions)
    every = -(-len(sessions) // MAX_TICKS)
    ticks = range(0, len(sessions), every)
    axes.set_xticks(ticks, [_date(sessions[place]) for place in ticks])
    axes.set_xlim(-0.5, len(sessions) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("sessions, the oldest first")
    axes.set_ylabel("samples/s")
    put_labels(axes, labels, room=RIGHT)


def _points(pool: Pool, sessions: Sequence[str]) -> list[tuple[int, float, Interval | None]]:
    """The throughput of each session that has the row, with its interval."""
    by_session: dict[str, list[RunRecord]] = {}
    for run in pool.ok_runs:
        by_session.setdefault(run.session_id, []).append(run)
    found = []
    for place, session in enumerate(sessions):
        if session in by_session:
            alone = replace(pool, runs=by_session[session])
            rate = stats.geometric_mean(alone.throughputs)
            found.append((place, rate, interval_of_throughput(alone)))
    return found


def _whiskers(points: Sequence[tuple[int, float, Interval | None]]) -> list[list[float]]:
    intervals = [(rate, interval or (rate, rate)) for _, rate, interval in points]
    return [
        [rate - low for rate, (low, _) in intervals],
        [high - rate for rate, (_, high) in intervals],
    ]


def _mark_changes(axes: Axes, panel: Panel, sessions: Sequence[str]) -> None:
    found = changes(panel, sessions)
    if len(found) > MAX_CHANGES:
        return
    for number, (place, text) in enumerate(found):
        axes.axvline(place - 0.5, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(  # at several heights, since changes may be close to each other
            *(place - 0.46, 0.03 + 0.13 * (number % 3), text),
            transform=axes.get_xaxis_transform(),
            va="bottom",
            fontsize=8,
        )


def changes(panel: Panel, sessions: Sequence[str]) -> list[tuple[int, str]]:
    """Where versions change: the place of the first session with the new ones, and which."""
    runs: dict[str, RunRecord] = {}
    for each in panel.series:
        for run in each.pool.ok_runs:
            runs.setdefault(run.session_id, run)
    found = []
    for place, (before, after) in enumerate(pairwise(sessions), 1):
        texts = [
            f"{name} {plain(old) or UNKNOWN} to {plain(new) or UNKNOWN}"
            for column, name in VERSIONS.items()
            if (old := getattr(runs[before], column)) != (new := getattr(runs[after], column))
        ]
        if texts:
            found.append((place, "\n".join(texts)))
    return found


def _date(session: str) -> str:
    """`11-30 04:29` of `20261130T042924Z-972829`; the name itself if it is another one."""
    time = session.partition("Z-")[0]
    if len(time) == 15 and time[8] == "T" and (time[:8] + time[9:]).isdecimal():
        return f"{time[4:6]}-{time[6:8]}\n{time[9:11]}:{time[11:13]}"
    return plain(session)[:12]


def _words(panel: Panel, _: Measured) -> Iterator[str]:
    sessions = _sessions(panel)
    for each in panel.series:
        points = _points(each.pool, sessions)
        if len(points) > 1:
            first, last = format_rate(points[0][1]), format_rate(points[-1][1])
            yield (
                f"{each.place}: {first} samples/s in the oldest of {len(points)} sessions, {last} "
                "in the newest"
            )
    for place, text in changes(panel, sessions):
        yield f"before session {place + 1}: {', '.join(text.splitlines())}"


SESSIONS = Kind(
    name="sessions",
    title="Sessions of the same work over time, with 95 % intervals",
    needs="at least two sessions of the same work",
    panels=_panels,
    height=lambda _: 2.4,
    draw=_draw,
    words=lambda panel, measured: list(_words(panel, measured)),
)
