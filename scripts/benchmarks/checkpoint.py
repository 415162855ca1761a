"""Benches of checkpoints: what whole, durable and checked files cost, against bare ones."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torchvision
from sides import in_turn, report
from torch import nn

from mgpubench.training.checkpoint import About, Content, load, save
from mgpubench.training.optimizer_state import load_optimizer_by_name, optimizer_by_name
from mgpubench.training.weights import load_into

PAIRS = 5


def trained_resnet50() -> tuple[nn.Module, torch.optim.Optimizer]:
    """A resnet50 after one step: 98 MB of weights, and as much momentum."""
    model = torchvision.models.resnet50(weights=None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    return model, optimizer


def save_ours(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    about = About(model="resnet50", classes=("cat", "dog"), image_size=224, epoch=1)
    named = optimizer_by_name(optimizer, model.named_parameters())
    save(path, Content(about=about, model=model.state_dict(), optimizer=named))


def save_bare(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with open(path, "wb") as file:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())


def saving() -> bool:
    """Saving resnet50 with its momentum, against torch.save with fsync."""
    model, optimizer = trained_resnet50()
    with one_thread(), tempfile.TemporaryDirectory(dir=".") as folder:
        ours, bare = Path(folder, "ours.pt"), Path(folder, "bare.pt")
        pairs = measure(
            lambda: fresh(ours, lambda: save_ours(ours, model, optimizer)),
            lambda: fresh(bare, lambda: save_bare(bare, model, optimizer)),
        )
    return judge("save resnet50 against torch.save and fsync", pairs, 1 / 2)


def loading() -> bool:
    """Reading and checking it against torch.load; then the same until the training can go on."""
    model, optimizer = trained_resnet50()
    with one_thread(), tempfile.TemporaryDirectory(dir=".") as folder:
        ours, bare = Path(folder, "ours.pt"), Path(folder, "bare.pt")
        save_ours(ours, model, optimizer)
        save_bare(bare, model, optimizer)
        reading = measure(
            lambda: seconds(lambda: load(ours)), lambda: seconds(lambda: torch_load(bare))
        )
        resuming = measure(
            lambda: seconds(lambda: resume_ours(ours, model, optimizer)),
            lambda: seconds(lambda: resume_bare(bare, model, optimizer)),
        )
    read = judge("load resnet50 against torch.load", reading, 1 / 3)
    return judge("the same, into model and optimizer", resuming, 1 / 3) and read


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch with one thread, as in a rank. More of them are slow while anything else runs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def torch_load(path: Path) -> Any:
    return torch.load(path, weights_only=True)


def resume_ours(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    content = load(path)
    load_into(model, content.model)
    load_optimizer_by_name(optimizer, content.optimizer, model.named_parameters())


def resume_bare(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    loaded = torch_load(path)
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])


def measure(ours: Callable[[], float], theirs: Callable[[], float]) -> list[tuple[float, float]]:
    """Pairs of seconds, after one pair that does not count."""
    in_turn(ours, theirs)
    return [in_turn(ours, theirs) for _ in range(PAIRS)]


def fresh(path: Path, write: Callable[[], None]) -> float:
    """Seconds to write a file that is not there, on a disk that has nothing else to write."""
    path.unlink(missing_ok=True)
    os.sync()
    return seconds(write)


def seconds(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def judge(what: str, pairs: list[tuple[float, float]], least: float) -> bool:
    """The rate of ours as a part of the bare one."""
    ratios = [theirs / ours for ours, theirs in pairs]
    ratio = statistics.median(ratios)
    listed = " ".join(f"{each:.2f}" for each in ratios)
    took = statistics.median(ours for ours, _ in pairs)
    figure = f"{ratio:.2f} x its rate ({listed}), {took:.2f} s"
    return report(what, figure, f"at least {least:.2f}", ratio >= least)
