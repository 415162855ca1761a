"""The columns: a row of runs.csv, a row of steps.csv, and the figures of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1

METHOD_VERSION = 2
"""Rises when a figure changes its definition or is measured differently, so that older figures are
not compared with newer ones. 2: pairs are made within a sitting, and runs follow each other
evenly."""

MACHINES_APART = " | "
"""Between the devices of different machines in `device_names`."""

Status = Literal["ok", "failed", "interrupted"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """What the preflight found out about a model."""

    num_parameters: int
    parameter_bytes: int
    num_classes: int
    """Number of its logits."""
    digest: str
    """Digest of the layers and code of a user's own model; empty for models with a name."""


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
    """One value per device, joined by `;`."""
    skipped_images: int | None = None
    """Unreadable images that this run met; None for synthetic data."""
    compile_s: float | None = None
    """None if nothing was compiled."""
    recompiles: int | None = None
    """None without --compile."""
    others_cpu_share: float | None = None
    """Share of the usable cores' time, 0 to 1, from the start of the run to its end."""
    step_time_change: float | None = None
    """Relative change of the step time over the window; None for a short window."""
    skipped_steps: int | None = None
    """Measured steps in which the GradScaler left the weights as they were; None without one."""
    peak_reserved_bytes: str = ""
    """Memory that torch took from the driver: one value per device, joined by `;`."""
    gpu_power_mean_w: float | None = None
    """Of one GPU. This and what follows is None without NVML, or for a short window."""
    energy_j: float | None = None
    samples_per_joule: float | None = None
    gpu_temperature_max_c: float | None = None
    gpu_utilization_mean: float | None = None
    gpu_utilization_per_device: str = ""
    """One value per device, joined by `;`."""
    throttle_reasons: str = ""
    """What slowed a GPU down in the window: names joined by `;`."""


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


def run_id(session_id: str, position: int, sitting: int = 1) -> str:
    """The name of a run. If it is repeated in a later sitting, it ends with that sitting."""
    name = f"{session_id}-{position:03d}"
    return name if sitting == 1 else f"{name}-{sitting}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """One row of runs.csv: one run. The fields are the columns, in their order.

    Header, writer and reader all use this list. A failed run has an identity and no figures.
    Unknown text is empty, and an unknown number is None.
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
    """Loader workers of all ranks together; None if nothing is loaded."""
    dataset_digest: str = ""
    variant: str = ""
    variant_number: int | None = None
    """Place of the variant on the command line, from 1."""
    sitting: int | None = None
    """1 for the call that began the session, 2 for the first `--resume`, and so on."""
    environment: str = ""
    """8 hex digits for the environment variables that change the speed, or `none`."""
    method_version: int | None = None
    rounds_added: int | None = None
    """None if the number of rounds was fixed. Otherwise the session is judged by a confidence
    sequence, and this is how many rounds had been added to those that were planned."""
    step_time_change: float | None = None
    optimizer: str = ""
    """Empty in rows that are older than this column: sgd."""
    accumulate: int | None = None
    """Micro-batches of a step; None in rows that are older than this column: 1."""
    skipped_steps: int | None = None
    warmup_s: float | None = None
    """Spin-up and warm-up steps, of the rank that gives the window. It is in no figure."""
    peak_reserved_bytes: str = ""
    gpu_power_mean_w: float | None = None
    energy_j: float | None = None
    samples_per_joule: float | None = None
    gpu_temperature_max_c: float | None = None
    gpu_utilization_mean: float | None = None
    gpu_utilization_per_device: str = ""
    throttle_reasons: str = ""

    @property
    def is_ok(self) -> bool:
        """True if the run has figures that may be compared."""
        return self.status == "ok"

    @property
    def finding_codes(self) -> tuple[str, ...]:
        """The codes in `findings`."""
        return tuple(code for code in self.findings.split(";") if code)
