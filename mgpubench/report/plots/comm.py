"""A picture of collectives: the time of a call and the bus bandwidth, over the size."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mgpubench.analysis.collectives import SizeRow, size_rows
from mgpubench.analysis.stats import Interval
from mgpubench.config.comm_request import OPERATIONS
from mgpubench.format import format_binary
from mgpubench.report.comm import CPU_NOTE, title
from mgpubench.report.plots.style import SETTINGS, looks
from mgpubench.results.comm import CommRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHES = ("-", "--", ":", "-.")
"""For the numbers of devices."""

SIZE_INCHES = (11.0, 5.0)


def draw_collectives(records: Sequence[CommRecord], file_format: str) -> bytes:
    """The picture of all sizes of a session, on white. `file_format` is `svg`, `png` or `pdf`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = [row for row in size_rows(records) if row.size_bytes]
    content = io.BytesIO()
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        times, bandwidths = figure.subplots(1, 2)
        draw_lines(times, rows, _times_us)
        draw_lines(bandwidths, rows, _bandwidths_gb_per_s)
        _set_log_scale(times)
        times.set_ylabel("time of a call (us)")
        bandwidths.set_ylabel("bus bandwidth (GB/s)")
        bandwidths.set_ylim(bottom=0)
        handles, labels = times.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", frameon=False)
        about = f"\n{CPU_NOTE}" if records[0].device_type == "cpu" else ""
        figure.suptitle(f"{title(records)}{about}", fontsize="medium")
        figure.savefig(content, format=file_format)
    return content.getvalue()


def draw_lines(
    axes: Axes, rows: Sequence[SizeRow], values: Callable[[SizeRow], tuple[float, Interval | None]]
) -> None:
    """A line for each operation and number of devices, with its intervals as bars."""
    counts = sorted({row.num_devices for row in rows})
    by_operation = dict(zip(OPERATIONS, looks([("", name) for name in OPERATIONS]), strict=True))
    for key in dict.fromkeys((row.operation, row.num_devices) for row in rows):
        own = [row for row in rows if (row.operation, row.num_devices) == key]
        found = [values(row) for row in own]
        look = by_operation[key[0]]
        axes.errorbar(
            [float(row.size_bytes or 0) for row in own],
            [value for value, _ in found],
            yerr=_bars(found),
            label=f"{key[0]} x{key[1]}",
            color=look.colour,
            marker=look.marker,
            linestyle=DASHES[counts.index(key[1]) % len(DASHES)],
            markersize=4,
            capsize=2,
        )
    _name_sizes(axes, sorted({row.size_bytes or 0 for row in rows}))


def _times_us(row: SizeRow) -> tuple[float, Interval | None]:
    interval = None if row.time_ci is None else (row.time_ci[0] * 1e6, row.time_ci[1] * 1e6)
    return row.time_s * 1e6, interval


def _bandwidths_gb_per_s(row: SizeRow) -> tuple[float, Interval | None]:
    ci = row.bus_bandwidth_ci
    return (row.bus_bandwidth or 0.0) / 1e9, None if ci is None else (ci[0] / 1e9, ci[1] / 1e9)


def _bars(found: Sequence[tuple[float, Interval | None]]) -> list[list[float]] | None:
    """The lengths of the bars below and above each value; None without intervals."""
    known = [(value, interval) for value, interval in found if interval is not None]
    if len(known) < len(found):
        return None
    return [
        [value - low for value, (low, _) in known],
        [high - value for value, (_, high) in known],
    ]


def _set_log_scale(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda *_: "")


def _name_sizes(axes: Axes, sizes: Sequence[int]) -> None:
    """A logarithmic axis that names at most seven of the sizes."""
    axes.set_xscale("log", base=2)
    step = -(-len(sizes) // 7)
    named = sizes[::step]
    axes.set_xticks(named, [format_binary(size) for size in named], rotation=30)
    axes.minorticks_off()
    axes.set_xlabel("size")
