"""Trains the smallest model of every torchvision family for one step in every mode, on the CPU.

Writes docs/models.md:  .venv/bin/python scripts/benchmarks/families.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
import torchvision

from mgpubench import host
from mgpubench.config import BUILTIN_MODELS, NUM_SYNTHETIC_CLASSES, default_image_size
from mgpubench.errors import BenchError
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from mgpubench.models import make_module
from mgpubench.plan import make_plan
from mgpubench.request import Request

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
MODES = ("single", "dp", "ddp")
HEAD = """# Models

`--model` takes every image classification model by its name in torchvision. The smallest of
every family trained for one step in every mode, with two CPU devices and two images each; made by
`scripts/benchmarks/families.py` with torch {torch} and torchvision {torchvision}.

| family | model | parameters | image size | single | dp | ddp |
|---|---|--:|--:|---|---|---|
"""


def families() -> Iterator[tuple[str, str, int]]:
    """Each family with its smallest model and that model's number of parameters."""
    members: dict[str, list[tuple[int, str]]] = {"built in": []}
    known = torchvision.models.list_models(module=torchvision.models)
    for name in [*BUILTIN_MODELS, *known]:
        family = "built in"
        if name in known:
            family = torchvision.models.get_model_builder(name).__module__.rpartition(".")[2]
        with torch.device("meta"):
            model = make_module(name, NUM_SYNTHETIC_CLASSES)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        members.setdefault(family, []).append((parameters, name))
    for family, models in sorted(members.items()):
        parameters, name = min(models)
        yield family, name, parameters


def try_modes(supervisor: Supervisor, name: str) -> list[str]:
    """What came of one step in each mode."""
    request = Request(
        device="cpu", gpus=(2,), model=name, batch_per_gpu=2, warmup_steps=0, steps=1, rounds=1
    )
    answers = dict.fromkeys(MODES, "not run")
    for config in make_plan(request, host.assumed_machine(0)).runs:
        try:
            supervisor.launch(replace(config, timeout_s=300.0), Path("none"), lambda steps: None)
            answers[config.mode] = "yes"
        except BenchError as error:
            answers[config.mode] = error.message
    return [answers[mode] for mode in MODES]


def main() -> None:
    """Write the page."""
    lines = []
    with StopSignal().installed() as stop, open_supervisor(stop, "torchvision") as parent:
        for family, name, parameters in families():
            answers = " | ".join(try_modes(parent, name))
            size = default_image_size(name)
            lines.append(f"| {family} | {name} | {parameters:,} | {size} | {answers} |")
            print(lines[-1], flush=True)
    head = HEAD.format(
        torch=torch.__version__.partition("+")[0],
        torchvision=torchvision.__version__.partition("+")[0],
    )
    PAGE.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
