"""Trains the smallest model of every torchvision family for one step in every mode, on the CPU.

Writes docs/models.md:  .venv/bin/python scripts/benchmarks/families.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
import torchvision

from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import BUILTIN_MODELS
from mgpubench.errors import BenchError
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from mgpubench.machine import host
from mgpubench.session.workers import IMAGES, INSPECT_MODEL, launch_run

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
MODES = ("single", "dp", "ddp")
HEAD = """# Models

`--model` takes every image classification model by its name in torchvision. The table shows the
smallest model of each family, trained for one step in every mode, on two CPU devices with two
images each. `scripts/benchmarks/families.py` wrote this page with torch {torch} and torchvision
{torchvision}.

| family | model | parameters | image size | single | dp | ddp |
|---|---|--:|--:|---|---|---|
"""


def families() -> Iterator[tuple[str, str]]:
    """Each family with its smallest model, by the size of its weights in torchvision."""
    members: dict[str, list[tuple[int, str]]] = {"built in": [(0, BUILTIN_MODELS[0])]}
    for name in torchvision.models.list_models(module=torchvision.models):
        family = torchvision.models.get_model_builder(name).__module__.rpartition(".")[2]
        weights = next(iter(torchvision.models.get_model_weights(name)))
        members.setdefault(family, []).append((weights.meta["num_params"], name))
    for family, models in sorted(members.items()):
        yield family, min(models)[1]


def plan_one_step(name: str) -> tuple[RunConfig, ...]:
    """One run of one step in each mode."""
    request = Request(
        device="cpu", gpus=(2,), model=name, batch_per_gpu=2, warmup_steps=0, steps=1, rounds=1
    )
    return make_plan(request, host.assumed_machine(0)).runs


def try_modes(supervisor: Supervisor, runs: tuple[RunConfig, ...]) -> list[str]:
    """The result of one step in each mode: `yes`, or why it failed."""
    answers = dict.fromkeys(MODES, "not run")
    for config in runs:
        try:
            launch_run(supervisor, replace(config, timeout_s=300.0), lambda steps: None)
            answers[config.mode] = "yes"
        except BenchError as error:
            answers[config.mode] = error.message
    return [answers[mode] for mode in MODES]


def main() -> None:
    """Write the page."""
    lines = []
    with StopSignal().installed() as stop, open_supervisor(stop, IMAGES) as parent:
        for family, name in families():
            runs = plan_one_step(name)
            facts = parent.call(INSPECT_MODEL, list(runs[:1]))
            answers = " | ".join(try_modes(parent, runs))
            lines.append(
                f"| {family} | {name} | {facts.num_parameters:,} | {runs[0].image_size} "
                f"| {answers} |"
            )
            print(lines[-1], flush=True)
    head = HEAD.format(
        torch=torch.__version__.partition("+")[0],
        torchvision=torchvision.__version__.partition("+")[0],
    )
    PAGE.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
