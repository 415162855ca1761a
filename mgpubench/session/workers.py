"""What worker processes are given to do: the functions they call, and the modules loaded for them.

Functions and modules are named and not imported, since they need torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from mgpubench.config.request import Request
from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import BUILTIN_MODELS, DEFAULT_MODES
from mgpubench.launch.loss_lines import LossReader
from mgpubench.launch.pace import Pace
from mgpubench.launch.step_count import STEP_COUNT_FILE, read_step_count
from mgpubench.launch.supervisor import Job, Supervisor
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
TRAIN_RANK = "mgpubench.training.rank:train_rank"
EVALUATE_RANK = "mgpubench.training.rank:evaluate_rank"
CHECK_PRETRAINED = "mgpubench.training.pretrained:check_pretrained"
READ_ABOUT = "mgpubench.training.checkpoint:read_about"
CHECK_START = "mgpubench.training.start:check_start"
PREDICT = "mgpubench.training.prediction:predict"
EXPORT_SAFETENSORS = "mgpubench.training.safetensors_export:export_safetensors"
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
TRAINING_OF_IMAGES = (*IMAGES, "mgpubench.training.data.augment")


def preload_for(request: Request) -> tuple[str, ...]:
    """The modules that the workers of a request need."""
    return IMAGES if any(map(_needs_torchvision, request.parts)) else TRAINING


def _needs_torchvision(request: Request) -> bool:
    is_built_in = request.smoke if request.model is None else request.model in BUILTIN_MODELS
    return request.uses_folder or not is_built_in


def listing_file(supervisor: Supervisor, data: str) -> Path:
    """The file in which the workers of a supervisor find the samples of an image folder."""
    name = hashlib.sha256(data.encode(errors="surrogateescape")).hexdigest()[:16]
    return supervisor.scratch / f"listing-{name}.json"


def launch_run(
    supervisor: Supervisor,
    config: RunConfig,
    on_steps: Callable[[int], None],
    target: str = RUN_RANK,
    on_loss: Callable[[float], None] | None = None,
) -> list[RankRecord]:
    """Run all ranks of one run to the end, and report its steps and its loss meanwhile.

    Raises:
        BenchError: the cause, if a rank failed or the run took too long.
    """
    folder = supervisor.make_folder()
    pace = _pace(config)
    runner, listing = f"{RUNNERS}.{config.mode}", listing_file(supervisor, config.data)
    losses = LossReader(folder, config.world_size)

    def show_loss() -> None:
        if on_loss is not None and (lines := losses.new_lines()):
            on_loss(lines[-1].loss)

    def watch(elapsed_s: float) -> None:
        count = read_step_count(folder / STEP_COUNT_FILE)
        show_loss()
        on_steps(count.steps)
        pace.check(count, elapsed_s)

    job = Job(
        target=target,
        calls=[(config, rank, runner, folder, listing) for rank in range(config.world_size)],
        folder=folder,
        label=config.label,
        watch=watch,
        finish=show_loss,
        hide_gpus=config.device_type == "cpu",
    )
    return supervisor.run(job)


def _pace(config: RunConfig) -> Pace:
    return Pace(
        label=config.label,
        warmup_steps=config.warmup_steps,
        total_steps=config.total_steps,
        timeout_s=config.timeout_s,
    )
