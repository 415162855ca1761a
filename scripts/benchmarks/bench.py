"""The figures that mgpubench itself must reach; see `scripts/bench`."""

from __future__ import annotations

import csv
import itertools
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torchvision
from PIL import Image
from torch import nn
from torchvision import transforms
from torchvision.io import decode_image, read_file

from mgpubench import host, stats
from mgpubench.config import NUM_SYNTHETIC_CLASSES, RunConfig
from mgpubench.data import open_feed
from mgpubench.images import decode_rgb, resize_and_crop
from mgpubench.launch.progress import StepCounter
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import open_supervisor
from mgpubench.plan import make_plan
from mgpubench.request import Request
from mgpubench.share import make_share, set_up_process
from mgpubench.timing import HostClock
from mgpubench.train import (
    LEARNING_RATE,
    MOMENTUM,
    WEIGHT_DECAY,
    Job,
    Schedule,
    TrainStep,
    no_barrier,
    train,
)
from mgpubench.trainable import build_model

BIN = Path(sys.executable).parent
MARGIN = 0.02


def report(what: str, figure: str, target: str, reached: bool) -> bool:
    """Print one line; pass on whether the target was reached."""
    print(f"{'ok  ' if reached else 'MISS'}  {what}: {figure}  (target: {target})", flush=True)
    return reached


def harness() -> bool:
    """Cost of the loop itself, step count included: a step that does nothing."""
    num_steps = 10_000
    loss = torch.tensor(0.0)
    with tempfile.TemporaryDirectory() as folder:
        counter = StepCounter(Path(folder) / "steps")
    job = Job(
        step=lambda batch: loss,
        batches=itertools.repeat((loss, torch.zeros(1))),
        make_clock=lambda steps: HostClock(),
        synchronize=lambda: None,
        barrier=no_barrier,
        on_step=counter.advance,
    )
    schedule = Schedule(settle_steps=0, lead_in_steps=0, measured_steps=num_steps)
    costs_us = []
    for _ in range(5):
        began_s = time.perf_counter()
        train(job, schedule)
        costs_us.append((time.perf_counter() - began_s) / num_steps * 1e6)
    cost_us = statistics.median(costs_us)
    return report("loop", f"{cost_us:.2f} us a step", "at most 20", cost_us <= 20)


def bare() -> bool:
    """Our loop against a bare one of the tutorial's kind: resnet18, batch 8, the same threads."""
    config = cpu_config(Request(device="cpu", modes=("single",), model="resnet18", batch_per_gpu=8))
    share = make_share(config, 0)
    set_up_process(config, share)
    feed = open_feed(config, share, Path("none"))
    ours = TrainStep(build_model(config), share.device)
    theirs = BareLoop(config)
    steps = 3
    job = Job(
        step=ours,
        batches=feed.batches,
        make_clock=lambda count: HostClock(),
        synchronize=lambda: None,
        barrier=no_barrier,
        on_step=lambda: None,
    )

    def run_ours() -> float:
        trace = train(job, Schedule(settle_steps=0, lead_in_steps=1, measured_steps=steps))
        return steps * config.global_batch / sum(trace.step_times_s[1:])

    return compare_sides("loop against bare loop, resnet18", run_ours, lambda: theirs.run(steps))


class BareLoop:
    """A loop with nothing around it."""

    def __init__(self, config: RunConfig) -> None:
        self._model = torchvision.models.resnet18(weights=None)
        self._optimizer = torch.optim.SGD(
            self._model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
        )
        self._criterion = nn.CrossEntropyLoss()
        shape = (config.global_batch, 3, config.image_size, config.image_size)
        self._batches = itertools.cycle(
            [
                (torch.randn(shape), torch.randint(0, NUM_SYNTHETIC_CLASSES, shape[:1]))
                for _ in range(4)
            ]
        )

    def run(self, steps: int) -> float:
        """Images per second over some steps, after one to warm up."""
        self._step()
        began_s = time.perf_counter()
        images = sum(self._step() for _ in range(steps))
        return images / (time.perf_counter() - began_s)

    def _step(self) -> int:
        images, labels = next(self._batches)
        self._optimizer.zero_grad()
        loss = self._criterion(self._model(images), labels)
        loss.backward()
        self._optimizer.step()
        return len(images)


def compare_sides(what: str, ours: Callable[[], float], theirs: Callable[[], float]) -> bool:
    """Interleaved pairs in random order, until the interval is narrow enough to judge."""
    ours(), theirs()
    pairs: list[tuple[float, float]] = []
    for _ in range(80):
        if random.random() < 0.5:
            first, second = ours(), theirs()
        else:
            second, first = theirs(), ours()
        pairs.append((first, second))
        result = stats.compare_paired(pairs, MARGIN)
        if result.interval and len(pairs) >= 10:
            low, high = result.interval
            if (high - low) / 2 <= 0.02:
                break
    low, high = result.interval or (0.0, 0.0)
    figure = f"{result.ratio:.3f} (95 % CI {low:.3f}..{high:.3f}, {len(pairs)} pairs)"
    return report(what, figure, "half-width <= 0.02, upper end >= 0.99", high >= 0.99)


def help_text() -> bool:
    """`mgpubench --help` against the import of Click alone."""

    def seconds(*command: str) -> float:
        began_s = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began_s

    ratios = []
    for _ in range(21):
        ours = seconds(str(BIN / "mgpubench"), "--help")
        ratios.append(ours / seconds(sys.executable, "-c", "import click"))
    ratio = statistics.median(ratios)
    return report("--help", f"{ratio:.2f} x `import click`", "at most 2.5", ratio <= 2.5)


def compare_1000() -> bool:
    """`mgpubench compare` over 1,000 runs."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [BIN / "mgpubench", "run", "--smoke", "--out", folder],
            check=True,
            capture_output=True,
        )
        (runs,) = Path(folder).glob("*/runs.csv")
        multiply_rows(runs, 1000)
        costs_s = []
        for _ in range(5):
            began_s = time.perf_counter()
            subprocess.run([BIN / "mgpubench", "compare", folder], check=True, capture_output=True)
            costs_s.append(time.perf_counter() - began_s)
    cost_s = statistics.median(costs_s)
    return report("compare over 1,000 runs", f"{cost_s:.2f} s", "at most 1.5", cost_s <= 1.5)


def multiply_rows(path: Path, count: int) -> None:
    """Repeat the rows of a runs.csv, as so many rounds."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        for number in range(count):
            row = rows[number % len(rows)]
            changes = {"run_id": f"run-{number}", "round": number // len(rows) + 1}
            writer.writerow({**row, **changes})


def relaunch() -> bool:
    """Second and later launches of two CPU ranks, to the end of their second step."""
    config = cpu_config(Request(smoke=True, modes=("ddp",), warmup_steps=1, steps=1))
    costs_s = []
    with StopSignal().installed() as stop, open_supervisor(stop, "training") as parent:
        for _ in range(11):
            began_s = time.perf_counter()
            parent.launch(config, Path("none"), lambda steps: None)
            costs_s.append(time.perf_counter() - began_s)
    cost_s = max(costs_s[1:])
    figure = f"{cost_s:.2f} s for a whole run of two steps, the slowest of 10"
    return report("launch again", figure, "at most 0.6 to the first step", cost_s <= 0.6)


def pipeline() -> bool:
    """One worker's images/s from JPEG files to the batch, against the tutorial's pipeline."""
    tutorial = transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )

    def read_tutorial(path: str) -> object:
        with Image.open(path) as image:
            return tutorial(image.convert("RGB"))

    def rate(read: Callable[[str], object], files: list[str]) -> float:
        began_s = time.perf_counter()
        for file in files:
            read(file)
        return len(files) / (time.perf_counter() - began_s)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a loader worker
    with tempfile.TemporaryDirectory() as folder:
        files = make_jpegs(Path(folder), 40)
        readers = (
            lambda path: resize_and_crop(decode_rgb(path), 224),
            read_tutorial,
            lambda path: decode_image(read_file(path)),
        )
        rates = [[rate(read, files) for read in readers] for _ in range(9)]
    torch.set_num_threads(threads)
    against_tutorial = stats.geometric_mean([ours / theirs for ours, theirs, _ in rates])
    of_decode = stats.geometric_mean([ours / decode for ours, _, decode in rates])
    figure = f"{against_tutorial:.2f} x the tutorial's images/s, {of_decode:.2f} of pure decode"
    reached = against_tutorial >= 1.7 and of_decode >= 0.6
    return report("input pipeline, 500 x 375 JPEG", figure, "at least 1.7 and 0.6", reached)


def make_jpegs(folder: Path, count: int) -> list[str]:
    """Images of ImageNet's usual size, with a photograph's mixture of smooth and rough."""
    generator = torch.Generator().manual_seed(0)
    files = []
    for number in range(count):
        coarse = torch.rand(1, 3, 12, 16, generator=generator)
        smooth = torch.nn.functional.interpolate(coarse, (375, 500), mode="bicubic")[0]
        noise = torch.randn(3, 375, 500, generator=generator) * 0.04
        pixels = ((smooth + noise).clamp(0, 1) * 255).to(torch.uint8)
        files.append(str(folder / f"{number}.jpg"))
        transforms.functional.to_pil_image(pixels).save(files[-1], quality=90)
    return files


def ddp() -> bool:
    """DDP on CPU as we start it, against the tutorial's way with torch's default threads."""
    steps = 5
    config = cpu_config(
        Request(device="cpu", gpus=(2,), modes=("ddp",), model="resnet18", batch_per_gpu=8)
    )
    config = replace(config, warmup_steps=2, steps=steps)
    script = Path(__file__).parent / "tutorial_ddp.py"
    ratios = []
    with StopSignal().installed() as stop, open_supervisor(stop, "torchvision") as parent:
        for _ in range(5):
            ranks = parent.launch(config, Path("none"), lambda count: None)
            ours = config.global_batch * steps / max(rank.window_s for rank in ranks)
            answer = subprocess.run(
                [sys.executable, script, str(steps)], check=True, capture_output=True, text=True
            )
            ratios.append(ours / float(answer.stdout.split()[-1]))
    ratio = stats.geometric_mean(ratios)
    figure = f"{ratio:.2f} x the images/s, {len(ratios)} pairs, {min(ratios):.2f} at least"
    return report("DDP on CPU against the tutorial's way", figure, "at least 2", ratio >= 2)


def cpu_config(request: Request) -> RunConfig:
    """The first run of a request on this computer's CPU."""
    return make_plan(request, host.assumed_machine(0)).runs[0]


BENCHES = {
    "harness": harness,
    "help": help_text,
    "compare": compare_1000,
    "relaunch": relaunch,
    "pipeline": pipeline,
    "ddp": ddp,
    "bare": bare,
}


def main() -> None:
    """Run the benches that were named, or all; the exit code says whether all targets held."""
    names = sys.argv[1:] or list(BENCHES)
    print(f"torch {torch.__version__}, {host.cpu_model()}, {host.usable_cores()} cores")
    results = [BENCHES[name]() for name in names]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
