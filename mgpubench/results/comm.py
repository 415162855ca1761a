"""The columns of comm.csv: one row for each size of each run of collectives."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mgpubench.results.schema import Status

COMM_CSV = "comm.csv"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommFigures:
    """The figures of one size in one run, as `metrics` defines them; None where unknown."""

    time_median_s: float | None = None
    """Seconds of a call: median over the timed blocks."""
    time_min_s: float | None = None
    time_max_s: float | None = None
    algorithm_bandwidth_bytes_per_s: float | None = None
    bus_bandwidth_bytes_per_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CommRecord:
    """One size in one run. Unknown text is empty, and an unknown number is None."""

    schema_version: int
    run_id: str = ""
    session_id: str = ""
    round: int
    position: int
    started_at: str = ""
    """Start of the run."""
    status: Status
    error: str = ""
    operation: str
    size_bytes: int | None = None
    """None for the barrier."""
    device_type: str = ""
    num_devices: int
    backend: str = ""
    threads_per_rank: int | None = None
    warmup_calls: int | None = None
    calls: int | None = None
    """Timed calls."""
    blocks: int | None = None
    """Timed blocks, of as many calls each."""
    time_median_s: float | None = None
    time_min_s: float | None = None
    time_max_s: float | None = None
    algorithm_bandwidth_bytes_per_s: float | None = None
    bus_bandwidth_bytes_per_s: float | None = None
    model: str = ""
    buckets: int | None = None
    """Gradient buckets of the model that have this size."""
    seed: int | None = None
    """From which the order of the runs and sizes was drawn."""
    device_names: str = ""
    machine: str = ""
    environment: str = ""
    torch_version: str = ""
    cuda_version: str = ""
    nccl_version: str = ""
    driver_version: str = ""
    python_version: str = ""
    mgpubench_version: str = ""
    num_nodes: int | None = None
    """Machines that take part."""

    @property
    def is_ok(self) -> bool:
        """True if it has figures."""
        return self.status == "ok"


COMM_FILES = {COMM_CSV: tuple(field.name for field in fields(CommRecord))}
"""The CSV file of a session of collectives, and its columns."""
