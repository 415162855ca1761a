"""What worker processes are given to do: the functions they call, and the modules loaded for them.

Functions and modules are named and not imported, since they need torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from mgpubench.config.comm_plan import CommConfig
from mgpubench.config.comm_request import Operation
from mgpubench.config.request import Request
from mgpubench.config.run_config import RunConfig
from mgpubench.config.train_config import TrainConfig
from mgpubench.config.types import BUILTIN_MODELS, DEFAULT_MODES
from mgpubench.launch.cause import find_cause
from mgpubench.launch.loss_lines import LossReader, rank_sources
from mgpubench.launch.pace import Pace
from mgpubench.launch.step_count import STEP_COUNT_FILE, read_step_count
from mgpubench.launch.supervisor import Job, Launcher
from mgpubench.results.rank_record import RankRecord

COUNT_GPUS = "mgpubench.machine.cuda:count_gpus"
DESCRIBE_TORCH = "mgpubench.machine.cuda:describe_torch"
CHECK_DECODER = "mgpubench.training.data.folder:check_decoder"
INSPECT_MODEL = "mgpubench.training.preflight:inspect_model"
CHECK_COMM_HOOK = "mgpubench.runners.comm_hooks:check_hook"
CHECK_DEEPSPEED = "mgpubench.runners.deepspeed_check:check_deepspeed"
CHECK_SHARDING = "mgpubench.training.sharding:check_sharding"
CHECK_COMPILER = "mgpubench.training.compilation:check_compiler"
RUN_RANK = "mgpubench.training.rank:run_rank"
SHOW_RANK = "mgpubench.training.shards:show_rank"
TRAIN_RANK = "mgpubench.training.rank:train_rank"
EVALUATE_RANK = "mgpubench.training.rank:evaluate_rank"
CHECK_PRETRAINED = "mgpubench.training.pretrained:check_pretrained"
READ_ABOUT = "mgpubench.training.checkpoint:read_about"
CHECK_START = "mgpubench.training.start:check_start"
PREDICT = "mgpubench.training.prediction:predict"
EXPORT_SAFETENSORS = "mgpubench.training.safetensors_export:export_safetensors"
MEASURE_COLLECTIVES = "mgpubench.collectives.rank:measure_rank"
FIND_LACKING = "mgpubench.collectives.rank:find_lacking"
BUCKET_SIZES = "mgpubench.collectives.buckets:bucket_sizes"
RUNNERS = "mgpubench.runners"
NOTHING = "os:getpid"
"""What the first worker of a fork server does, so that loading torch is not a part of a run."""

TORCH = ("mgpubench.machine.cuda",)
TRAINING = (
    *TORCH,
    "mgpubench.training.rank",
    "mgpubench.training.preflight",
    *(f"{RUNNERS}.{mode}" for mode in DEFAULT_MODES),
    "torch._dynamo",  # torch's optimizers import it at their first use, which takes a second
)
IMAGES = (*TRAINING, "mgpubench.training.data.decode")
COLLECTIVES = (*TORCH, "mgpubench.collectives.rank", "mgpubench.collectives.buckets")
FSDP = (f"{RUNNERS}.fsdp",)
"""DeepSpeed's is not loaded in advance, as it may touch CUDA."""
TRAINING_OF_IMAGES = (*IMAGES, "mgpubench.training.data.augment")


def preload_for(request: Request) -> tuple[str, ...]:
    """The modules that the workers of a request need."""
    modules = IMAGES if any(map(_needs_torchvision, request.parts)) else TRAINING
    needs_fsdp = any("fsdp" in (part.modes or ()) for part in request.parts)
    return (*modules, *FSDP) if needs_fsdp else modules


def _needs_torchvision(request: Request) -> bool:
    is_built_in = request.smoke if request.model is None else request.model in BUILTIN_MODELS
    return request.uses_folder or not is_built_in


def listing_file(launcher: Launcher, data: str) -> Path:
    """The file in which the workers of a launcher find the samples of an image folder."""
    name = hashlib.sha256(data.encode(errors="surrogateescape")).hexdigest()[:16]
    return launcher.scratch / f"listing-{name}.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOrder:
    """A run, of which every machine makes its own ranks.

    What they call is not in it, nor in other orders, since it may come from the network.
    """

    config: RunConfig

    def job(self, launcher: Launcher, node: int = 0, target: str = RUN_RANK) -> Job:
        """The job of one machine."""
        config = self.config
        job = _job_of_ranks(self, config, launcher, node)
        runner, listing = f"{RUNNERS}.{config.mode}", listing_file(launcher, config.data)
        calls = [(config, rank, runner, folder, listing) for rank, folder in job.calls]
        return replace(job, target=target, calls=calls)


@dataclass(frozen=True, slots=True)
class TrainOrder:
    """The training that was announced begins: every machine makes its own ranks of it."""


def training_job(config: TrainConfig, launcher: Launcher, node: int = 0) -> Job:
    """The job of one machine in a training: its own ranks."""
    run = config.run
    job = _job_of_ranks(TrainOrder(), run, launcher, node)
    runner, listing = f"{RUNNERS}.{run.mode}", listing_file(launcher, run.data)
    calls = [(config, rank, runner, folder, listing) for rank, folder in job.calls]
    return replace(job, target=TRAIN_RANK, calls=calls)


class CommStep:
    """What `mgpubench comm` lets the ranks of all machines do."""

    __slots__ = ()

    def job(self, launcher: Launcher, node: int = 0) -> Job:
        """The job of one machine."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True)
class CommOrder(CommStep):
    """A run of collectives, of which every machine makes its own ranks."""

    config: CommConfig

    def job(self, launcher: Launcher, node: int = 0) -> Job:
        """The job of one machine."""
        config = self.config
        job = _job_of_ranks(self, config.run, launcher, node)
        return replace(
            job,
            target=MEASURE_COLLECTIVES,
            calls=[(config, rank, folder) for rank, folder in job.calls],
            label=config.label,
            explain=partial(find_cause, sizes=config.memory_option),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TryOrder(CommStep):
    """Some operations are tried, to find out which of them the backend does not have."""

    run: RunConfig
    operations: tuple[Operation, ...]

    def job(self, launcher: Launcher, node: int = 0) -> Job:
        """The job of one machine."""
        job = _job_of_ranks(self, self.run, launcher, node)
        calls = [(self.run, rank, folder, self.operations) for rank, folder in job.calls]
        return replace(job, target=FIND_LACKING, calls=calls, label="trying each operation")


def _job_of_ranks(order: object, run: RunConfig, launcher: Launcher, node: int) -> Job:
    """What all jobs of ranks have in common; each rank is called with itself and the job's folder.

    The ranks of a machine follow those of the machines before it.
    """
    folder, ranks = launcher.make_folder(), run.ranks_of_node(node)
    return Job(
        target="",
        calls=[(rank, folder) for rank in ranks],
        folder=folder,
        label=run.label,
        watch=lambda elapsed_s: None,
        hide_gpus=run.device_type == "cpu",
        explain=partial(find_cause, sizes=run.sizes),
        first_rank=ranks.start,
        order=order if run.num_nodes > 1 else None,
    )


def launch_run(
    launcher: Launcher,
    config: RunConfig,
    on_steps: Callable[[int], None],
    target: str = RUN_RANK,
    on_loss: Callable[[float], None] | None = None,
) -> list[RankRecord]:
    """Run all ranks of one run to the end, and report its steps and its loss meanwhile.

    On several machines the loss is that of this machine's ranks.

    Raises:
        BenchError: the cause, if a rank failed or the run took too long.
    """
    job = RunOrder(config=config).job(launcher, target=target)
    pace = _pace(config)
    losses = LossReader(rank_sources(job.folder, config.ranks_of_node(0)))

    def show_loss() -> None:
        if on_loss is not None and (lines := losses.new_lines()):
            on_loss(lines[-1].loss)

    def watch(elapsed_s: float) -> None:
        count = read_step_count(job.folder / STEP_COUNT_FILE)
        show_loss()
        on_steps(count.steps)
        pace.check(count, elapsed_s)

    return launcher.run(replace(job, watch=watch, finish=show_loss))


def _pace(config: RunConfig) -> Pace:
    return Pace(
        label=config.label,
        warmup_steps=config.warmup_steps,
        total_steps=config.total_steps,
        timeout_s=config.timeout_s,
        sizes=config.sizes,
    )
