"""What comes out: one rank's raw record, the figures of a run, and the row of runs.csv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

SCHEMA_VERSION = 1

Status = Literal["ok", "failed", "interrupted"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiling:
    """What torch.compile did in one process."""

    first_pass_s: float
    """Of the first forward and backward pass, in which it compiles."""
    graphs: int
    """Pieces of the model that were compiled in that pass; 0: it ran uncompiled."""
    recompiles: int
    """Pieces compiled after that pass."""
    graph_breaks: int
    """Places at which it had to leave the compiled code."""


class Remark(NamedTuple):
    """Something about one image that the loader met, to be told once the run is over."""

    kind: Literal["bad", "huge"]
    """bad: it could not be read, and another stood in for it; huge: beyond Pillow's limit."""
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RankRecord:
    """What one process measured. Steps are listed warm-up first, then the window."""

    rank: int
    samples: list[int]
    """Samples that this rank took in each step, counted."""
    step_times_s: list[float]
    data_waits_s: list[float]
    """Time in `next(loader)`, a part of the step time."""
    window_s: float
    """The measured steps, first mark to last mark, on this rank's step clock."""
    clock_span_s: float
    """Lead-in and window together, by the step clock."""
    host_span_s: float
    """The same by the host's clock; both ends are synchronised, so the two must agree."""
    peak_memory_bytes: list[int]
    """One value for each device of this rank; empty on a CPU."""
    final_loss: float
    """Loss of the last step, read after the window."""
    cpu_s: float = 0.0
    """CPU time of this process and of its loader workers, from its start on."""
    remarks: tuple[Remark, ...] = ()
    """About images, each once."""
    compiling: Compiling | None = None
    """What torch.compile did; None where it was not asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuTime:
    """CPU time used so far, at one moment of the monotonic clock."""

    at_s: float
    busy_s: float | None
    """By all processes, and neighbours of a virtual machine, on the cores that may be used."""
    own_s: float
    """By this process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """What the preflight learned about a model."""

    num_parameters: int
    parameter_bytes: int
    num_classes: int
    """Width of its logits."""
    digest: str
    """Of an own model's layers and code; empty for the models that have a name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The figures of one run, as `metrics` defines them; None where unknown."""

    samples: int | None = None
    window_s: float | None = None
    throughput_samples_per_s: float | None = None
    throughput_per_device_samples_per_s: float | None = None
    step_time_median_s: float | None = None
    step_time_p95_s: float | None = None
    step_time_p99_s: float | None = None
    step_time_max_s: float | None = None
    data_wait_s: float | None = None
    peak_memory_bytes: str = ""
    """One value a device, joined by `;`."""
    skipped_images: int | None = None
    """Met in this run; None where the data are synthetic."""
    compile_s: float | None = None
    """None where nothing was compiled."""
    recompiles: int | None = None
    """None where torch.compile was not asked for."""
    others_cpu_share: float | None = None
    """Of the time of the cores that may be used, 0 to 1, from the start of the run to its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRecord:
    """One row of steps.csv."""

    run_id: str
    rank: int
    step: int
    phase: Literal["warmup", "measured"]
    step_time_s: float
    data_wait_s: float
    samples: int


def run_id(session_id: str, position: int) -> str:
    """The name of a run: the same if it is made again after a failure."""
    return f"{session_id}-{position:03d}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """One row of runs.csv: one run. The fields are the columns, in their order.

    Header, writer and reader all come from this list. A failed run has its identity and no
    figures. Text that is unknown is empty; a number that is unknown is None.
    """

    schema_version: int
    run_id: str = ""
    session_id: str = ""
    round: int | None = None
    position: int | None = None
    started_at: str = ""
    status: str
    error: str = ""
    mode: str
    effective_mode: str = ""
    device_type: str = ""
    num_devices: int
    world_size: int | None = None
    num_nodes: int | None = None
    backend: str = ""
    model: str = ""
    num_parameters: int | None = None
    parameter_bytes: int | None = None
    data: str = ""
    dataset_samples: int | None = None
    image_size: int | None = None
    precision: str = ""
    channels_last: bool | None = None
    compiled: bool | None = None
    scaling: str = ""
    batch_per_device: int | None = None
    global_batch: int | None = None
    workers_per_device: int | None = None
    threads_per_rank: int | None = None
    options: str = ""
    warmup_steps: int | None = None
    steps: int | None = None
    samples: int | None = None
    window_s: float | None = None
    throughput_samples_per_s: float | None = None
    throughput_per_device_samples_per_s: float | None = None
    step_time_median_s: float | None = None
    step_time_p95_s: float | None = None
    step_time_p99_s: float | None = None
    step_time_max_s: float | None = None
    data_wait_s: float | None = None
    peak_memory_bytes: str = ""
    seed: int | None = None
    device_names: str = ""
    machine: str = ""
    torch_version: str = ""
    cuda_version: str = ""
    nccl_version: str = ""
    driver_version: str = ""
    python_version: str = ""
    mgpubench_version: str = ""
    findings: str = ""
    skipped_images: int | None = None
    compile_s: float | None = None
    recompiles: int | None = None
    model_digest: str = ""
    others_cpu_share: float | None = None
    loader_workers: int | None = None
    """Of all ranks together; None where nothing is loaded."""
    dataset_digest: str = ""

    @property
    def is_ok(self) -> bool:
        """True where the run has figures that may be compared."""
        return self.status == "ok"

    @property
    def finding_codes(self) -> tuple[str, ...]:
        """The codes in `findings`."""
        return tuple(code for code in self.findings.split(";") if code)
