"""What a person sees on stderr while collectives are measured."""

from __future__ import annotations

from collections.abc import Sequence

from mgpubench.config.comm_plan import CommConfig
from mgpubench.errors import BenchError
from mgpubench.format import format_bandwidth, format_binary, format_count, format_microseconds
from mgpubench.report.live import LiveLines
from mgpubench.results.comm import CommRecord


class CommProgress:
    """A `comm_recorder.CommDisplay` on stderr."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._live = LiveLines()
        self._name = ""
        self._number = self._num_runs = 0
        self._sizes_done = self._sizes_before = 0
        self._config: CommConfig | None = None

    def notice(self, text: str) -> None:
        """Print a line that begins with `note:`."""
        self._live.line(f"note: {text}")

    def add_runs(self, runs: Sequence[CommConfig]) -> None:
        """Extend the bar over the sizes of these runs."""
        self._num_runs = len(runs)
        self._live.update(total=sum(len(config.sizes) for config in runs))

    def begin_run(self, config: CommConfig) -> None:
        """Show the name of the run in the bar."""
        self._number += 1
        self._sizes_before += len(self._config.sizes) if self._config else 0
        self._sizes_done = self._sizes_before
        self._config = config
        self._name = (
            f"run {self._number}/{self._num_runs} (round {config.run.round}) {config.label}"
        )
        self._live.update(completed=self._sizes_done, description=self._name, rate="starting")

    def on_size(self, record: CommRecord) -> None:
        """Show the size that was measured last."""
        self._sizes_done += 1
        self._live.update(completed=self._sizes_done, rate=format_binary(record.size_bytes))

    def end_run(self, records: Sequence[CommRecord], error: BenchError | None) -> None:
        """Print the figures of a run, or its error, in one line."""
        if error is None:
            self._live.line(f"{self._name}: {_gist(records)}")
            return
        if self._verbose:
            self._live.console.print(error.details)
        self._live.line(f"{self._name}: failed")
        self._live.line(f"error: {error.message}")
        if error.hint:
            self._live.line(f"hint: {error.hint}")

    def close(self) -> None:
        """Remove the bar."""
        self._live.close()


def _gist(records: Sequence[CommRecord]) -> str:
    """The largest size, which shows the bandwidth; the time of a barrier."""
    largest = max(records, key=lambda record: record.size_bytes or 0)
    time = f"{format_microseconds(largest.time_median_s)} us"
    if largest.size_bytes is None:
        return time
    bandwidth = format_bandwidth(largest.bus_bandwidth_bytes_per_s)
    return (
        f"{format_count(len(records), 'size')}, {format_binary(largest.size_bytes)} in {time}, "
        f"{bandwidth} GB/s on the bus"
    )
