"""What training costs beyond the steps that `mgpubench run` measures."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pandas as pd
from loading import jpegs
from sides import compare_rates, cpu_config, interval_of, report, step_of

from mgpubench.config.request import Request
from mgpubench.training.data.loader import open_feed
from mgpubench.training.devices import Part
from mgpubench.training.loop import train
from mgpubench.training.rank import make_part
from mgpubench.training.technique import nothing
from mgpubench.training.torch_settings import set_up_process

IMAGES = 40
LINKS = 25
"""How often each image is in the folder."""
BATCH = 16
WORK = (
    *("--mode", "ddp", "--device", "cpu", "--gpus", "2", "--model", "resnet18"),
    *("--image-size", "64", "--batch-per-gpu", str(BATCH)),
)


def log() -> bool:
    """The window with a line of loss every 10 steps, against one without, in one process."""
    steps = 40
    request = Request(device="cpu", modes=("single",), model="tiny-cnn", image_size=64)
    quiet = replace(cpu_config(request), warmup_steps=2, steps=steps, log_every=0)
    with tempfile.TemporaryDirectory() as folder:
        part = make_part(quiet, 0, Path(folder), Path("none"))
        set_up_process(part)
        feed, step = open_feed(part), step_of(part)
        logging = replace(part, config=replace(quiet, log_every=10))

        def rate(of: Part) -> float:
            trace = train(of, step, feed.batches, nothing)
            return steps * quiet.global_batch / sum(trace.step_times_s[quiet.warmup_steps :])

        result = compare_rates(lambda: rate(logging), lambda: rate(part), 40)
    figure = f"{result.ratio:.4f} x the samples/s ({interval_of(result)})"
    return report("lines of loss, tiny-cnn", figure, "at least 0.99", result.ratio >= 0.99)


def trained() -> bool:
    """Images/s of an epoch of `train` against those of the window of `run`, resnet18, 2 ranks."""
    with many_images() as root, tempfile.TemporaryDirectory() as out:
        folder = Path(out)
        result = compare_rates(lambda: train_rate(root, folder), lambda: run_rate(root, folder), 10)
    figure = f"{result.ratio:.3f} x the images/s of run ({interval_of(result)})"
    return report("train, resnet18, 64 px", figure, "at least 0.97", result.ratio >= 0.97)


@contextmanager
def many_images() -> Iterator[Path]:
    """A folder with every image many times."""
    with jpegs(IMAGES) as root:
        for path in list(root.rglob("*.jpg")):
            for number in range(1, LINKS):
                os.link(path, path.with_stem(f"{path.stem}-{number}"))
        yield root


def train_rate(root: Path, out: Path) -> float:
    """Images/s of the second epoch, since the first one has steps that `run` calls warm-up."""
    new = made_by(out, "train", *WORK, "--data", str(root), "--no-augment", "--epochs", "2")
    epochs = pd.read_csv(new / "epochs.csv")
    return float(epochs["throughput_samples_per_s"].iloc[-1])


def run_rate(root: Path, out: Path) -> float:
    """Images/s of a window as long as an epoch, after a warm-up that is as long."""
    steps = str(IMAGES * LINKS // (2 * BATCH))
    new = made_by(
        *(out, "run", *WORK, "--data", str(root), "--rounds", "1"),
        *("--steps", steps, "--warmup-steps", steps),
    )
    return float(pd.read_csv(new / "runs.csv")["throughput_samples_per_s"].iloc[-1])


def made_by(out: Path, *arguments: str) -> Path:
    """The folder that a command has made."""
    before = set(out.iterdir())
    subprocess.run(
        [sys.executable, "-m", "mgpubench", *arguments, "--out", str(out)],
        check=True,
        capture_output=True,
    )
    (new,) = set(out.iterdir()) - before
    return new
