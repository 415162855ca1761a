"""Checks the speeds that mgpubench itself must reach; see `scripts/bench`."""

from __future__ import annotations

import csv
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import checkpoint
import collectives
import loading
import reporting
import telemetry
import torch
import torchvision
import training
import two_hosts
from sides import compare_pairs, cpu_config, in_turn, only_part, report, step_of
from torch import nn

from mgpubench.analysis import stats
from mgpubench.analysis.comparison import Comparison
from mgpubench.config.recipe import measured_recipe
from mgpubench.config.request import Request
from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import NUM_SYNTHETIC_CLASSES
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import open_supervisor
from mgpubench.machine import host
from mgpubench.session.workers import IMAGES, TRAINING, launch_run
from mgpubench.training.data.loader import open_feed
from mgpubench.training.loop import train
from mgpubench.training.technique import nothing
from mgpubench.training.torch_settings import set_up_process

RECIPE = measured_recipe("sgd")

BIN = Path(sys.executable).parent


def harness() -> bool:
    """The cost of the loop with a step that does nothing. Counting the steps is included."""
    num_steps = 10_000
    request = Request(smoke=True, modes=("single",), warmup_steps=0, steps=num_steps)
    part = only_part(cpu_config(request))
    loss = torch.tensor(0.0)
    batches = itertools.repeat((loss, torch.zeros(1)))
    costs_us = []
    for _ in range(5):
        began_s = time.perf_counter()
        train(part, lambda batches: next(batches)[0], batches, nothing)
        costs_us.append((time.perf_counter() - began_s) / num_steps * 1e6)
    cost_us = statistics.median(costs_us)
    return report("loop", f"{cost_us:.2f} us a step", "at most 20", cost_us <= 20)


def bare() -> bool:
    """Our loop against a bare one as in the tutorial: resnet18, batch 8, the same threads."""
    steps = 3
    request = Request(device="cpu", modes=("single",), model="resnet18", batch_per_gpu=8)
    config = replace(cpu_config(request), warmup_steps=1, steps=steps)
    part = only_part(config)
    set_up_process(part)
    feed = open_feed(part)
    ours = step_of(part)
    theirs = BareLoop(config)

    def run_ours() -> float:
        trace = train(part, ours, feed.batches, nothing)
        return steps * config.global_batch / sum(trace.step_times_s[1:])

    result = until_narrow(run_ours, lambda: theirs.run(steps))
    low, high = result.interval or (0.0, 0.0)
    figure = f"{result.ratio:.3f} (95 % CI {low:.3f}..{high:.3f}, {result.pairs} pairs)"
    target = "half-width <= 0.02, upper end >= 0.99"
    return report("loop against bare loop, resnet18", figure, target, high >= 0.99)


def until_narrow(ours: Callable[[], float], theirs: Callable[[], float]) -> Comparison:
    """Measure pairs until the interval is narrow enough to judge."""
    in_turn(ours, theirs)
    pairs: list[tuple[float, float]] = []
    while True:
        pairs.append(in_turn(ours, theirs))
        result = compare_pairs(pairs)
        if result.interval and len(pairs) >= 10:
            low, high = result.interval
            if (high - low) / 2 <= 0.02 or len(pairs) == 80:
                return result


class BareLoop:
    """A loop with nothing around it."""

    def __init__(self, config: RunConfig) -> None:
        self._model = torchvision.models.resnet18(weights=None)
        self._optimizer = torch.optim.SGD(
            self._model.parameters(),
            lr=RECIPE.lr,
            momentum=RECIPE.momentum,
            weight_decay=RECIPE.weight_decay,
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
        """Images per second over some steps, after one warm-up step."""
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


def seconds(*command: str) -> float:
    """How long a whole process takes."""
    began_s = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began_s


def help_text() -> bool:
    """`mgpubench --help` against the import of Click alone."""
    ratios = []
    for _ in range(21):
        ours = seconds(str(BIN / "mgpubench"), "--help")
        ratios.append(ours / seconds(sys.executable, "-c", "import click"))
    ratio = statistics.median(ratios)
    return report("--help", f"{ratio:.2f} x `import click`", "at most 2.5", ratio <= 2.5)


def import_package() -> bool:
    """What `import mgpubench` takes beyond the start of Python."""
    costs_s = [
        seconds(sys.executable, "-c", "import mgpubench") - seconds(sys.executable, "-c", "")
        for _ in range(21)
    ]
    cost_ms = statistics.median(costs_s) * 1e3
    return report("import mgpubench", f"{cost_ms:.1f} ms", "at most 30", cost_ms <= 30)


def info() -> bool:
    """`mgpubench info` against the import of torch, which it needs."""
    pairs = [
        (seconds(str(BIN / "mgpubench"), "info"), seconds(sys.executable, "-c", "import torch"))
        for _ in range(5)
    ]
    cost_s = statistics.median(ours for ours, _ in pairs)
    ratio = statistics.median(ours / torch_s for ours, torch_s in pairs)
    figure = f"{cost_s:.2f} s, {ratio:.2f} x `import torch`"
    return report("info", figure, "at most 4 s, or 1.25 x", cost_s <= 4 or ratio <= 1.25)


COMPARED = {1_000: 1.5, 10_000: 2.0, 50_000: 6.0}
"""Runs that `mgpubench compare` reads, and the seconds that it may take."""


def compare() -> bool:
    """`mgpubench compare` over many runs of one session."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [BIN / "mgpubench", "run", "--smoke", "--out", folder],
            check=True,
            capture_output=True,
        )
        (runs,) = Path(folder).glob("*/runs.csv")
        reached = [compare_runs(runs, count) for count in COMPARED]
    return all(reached)


def compare_runs(runs: Path, count: int) -> bool:
    """The same for some number of runs."""
    multiply_rows(runs, count)
    cost_s = statistics.median(
        seconds(str(BIN / "mgpubench"), "compare", str(runs)) for _ in range(5)
    )
    limit_s = COMPARED[count]
    what = f"compare over {count:,} runs"
    return report(what, f"{cost_s:.2f} s", f"at most {limit_s:g}", cost_s <= limit_s)


def multiply_rows(path: Path, count: int) -> None:
    """Repeat the rows of a runs.csv, as if there had been more rounds."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["round"] == "1"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        for number in range(count):
            row = rows[number % len(rows)]
            changes = {
                "run_id": f"run-{number}",
                "position": number + 1,
                "round": number // len(rows) + 1,
            }
            writer.writerow({**row, **changes})


def relaunch() -> bool:
    """The second and later launches of two CPU ranks, to the end of a run of two steps."""
    config = cpu_config(Request(smoke=True, modes=("ddp",), warmup_steps=1, steps=1))
    costs_s = []
    with StopSignal().installed() as stop, open_supervisor(stop, TRAINING) as parent:
        for _ in range(11):
            began_s = time.perf_counter()
            launch_run(parent, config, lambda steps: None)
            costs_s.append(time.perf_counter() - began_s)
    cost_s = max(costs_s[1:])
    figure = f"{cost_s:.2f} s for a whole run of two steps, the slowest of 10"
    return report("launch again", figure, "at most 0.6 to the first step", cost_s <= 0.6)


def ddp() -> bool:
    """DDP on the CPU as we start it, against the tutorial's way with torch's default threads."""
    steps = 5
    config = cpu_config(
        Request(device="cpu", gpus=(2,), modes=("ddp",), model="resnet18", batch_per_gpu=8)
    )
    config = replace(config, warmup_steps=2, steps=steps)
    script = Path(__file__).parent / "tutorial_ddp.py"
    ratios = []
    with StopSignal().installed() as stop, open_supervisor(stop, IMAGES) as parent:
        for _ in range(5):
            ranks = launch_run(parent, config, lambda count: None)
            ours = config.global_batch * steps / max(rank.window_s for rank in ranks)
            answer = subprocess.run(
                [sys.executable, script, str(steps)], check=True, capture_output=True, text=True
            )
            ratios.append(ours / float(answer.stdout.split()[-1]))
    ratio = stats.geometric_mean(ratios)
    figure = f"{ratio:.2f} x the images/s, {len(ratios)} pairs, {min(ratios):.2f} at least"
    return report("DDP on CPU against the tutorial's way", figure, "at least 2", ratio >= 2)


BENCHES = {
    "harness": harness,
    "help": help_text,
    "import": import_package,
    "info": info,
    "compare": compare,
    "pages": reporting.pages,
    "relaunch": relaunch,
    "pipeline": loading.pipeline,
    "workers": loading.workers,
    "folder": loading.folder,
    "save": checkpoint.saving,
    "load": checkpoint.loading,
    "log": training.log,
    "train": training.trained,
    "sampler": telemetry.sampler,
    "telemetry": telemetry.reading,
    "beside": telemetry.disturbance,
    "ddp": ddp,
    "comm": collectives.comm,
    "records": two_hosts.records,
    "start": two_hosts.start,
    "link": two_hosts.link,
    "bare": bare,
}


def main() -> None:
    """Run the named benches, or all. The exit code is 0 if all targets were reached."""
    names = sys.argv[1:] or list(BENCHES)
    print(f"torch {torch.__version__}, {host.cpu_model()}, {host.usable_cores()} cores")
    results = [BENCHES[name]() for name in names]
    sys.exit(not all(results))
