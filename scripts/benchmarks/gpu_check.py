"""Checks on one GPU what no CPU can show, in the order of risk; see `scripts/gpu check`.

    python -m scripts.benchmarks.gpu_check [--device cpu] [--limit SECONDS] [NAME...]

One line a check: `ok`, `BAD`, `skip` with the reason, or `late` if the time was over before it.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from mgpubench.config.machine_facts import Machine
from mgpubench.config.plan import make_plan
from mgpubench.config.request import Request
from mgpubench.errors import BenchError
from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from mgpubench.session.workers import DESCRIBE_TORCH, TRAINING, launch_run

LIMIT_S = 360
"""For all checks together."""

BATCH = 8
REPLICAS = 2

SUM_ERROR = 1e-4
"""Relative difference of gradients: the sums of fp32 are made in another order."""

FP32_ERROR = 1e-5
TF32_ERROR = 1e-2
"""Relative errors of products with 1,024 terms. TF32 is between the two."""


class Wrong(Exception):
    """What is not as it must be."""


class Skipped(Exception):
    """Why a check cannot be made here."""


def need(condition: object, otherwise: str) -> None:
    """Raise `Wrong` if a condition does not hold."""
    if not condition:
        raise Wrong(otherwise)


@dataclass(frozen=True)
class Bench:
    """Where the checks are made, and until when."""

    device: str
    machine: Machine
    supervisor: Supervisor
    folder: Path
    ends_s: float

    def only_on_a_gpu(self) -> None:
        """Skip the check on a CPU."""
        if self.device == "cpu":
            raise Skipped("it needs a GPU")

    def ask(self, mode: str, target: str = "tests.gradients:one_step", **changes: Any) -> list[Any]:
        """What each rank of a run answers; all replicas of a run share the GPU."""
        replicas = 1 if mode == "single" else REPLICAS
        request = Request(
            device=self.device,  # type: ignore[arg-type]
            modes=(mode,),  # type: ignore[arg-type]
            gpus=(replicas,),
            oversubscribe=self.device == "cuda" and replicas > 1,
            timeout_s=self.left_s,
            **{"model": "mlp", "batch_per_gpu": BATCH, "image_size": 32, **changes},
        )
        config = make_plan(request, self.machine).runs[0]
        return launch_run(self.supervisor, config, lambda steps: None, target)

    def run(self, name: str, *options: object) -> tuple[list[dict[str, str]], str]:
        """The rows of `mgpubench run`, and what it says on stderr."""
        out = self.folder / name
        command = [sys.executable, "-m", "mgpubench", "run", "--device", self.device, "--out", out]
        model = ("--model", "resnet18" if self.device == "cuda" else "tiny-cnn")
        work = (*model, "--image-size", 64, "-b", BATCH, "--warmup-steps", 20, "--steps", 50)
        ended = subprocess.run(
            [str(word) for word in (*command, *work, *options)],
            capture_output=True,
            text=True,
            timeout=self.left_s,
        )
        paths = list(out.glob("*/runs.csv"))
        need(paths, f"no session: {last_line(ended.stderr)}")
        with paths[0].open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            need("clock-mismatch" not in row["findings"], f"clock-mismatch in {row['mode']}")
        return rows, ended.stderr

    def run_well(self, name: str, *options: object) -> list[dict[str, str]]:
        """The same, if every run succeeds."""
        rows, err = self.run(name, *options)
        failed = [row["mode"] for row in rows if row["status"] != "ok"]
        need(rows and not failed, f"failed: {', '.join(failed)}: {last_line(err)}")
        return rows

    @property
    def left_s(self) -> float:
        """Seconds until the end."""
        return max(1.0, self.ends_s - time.monotonic())


def last_line(text: str) -> str:
    """The line of an error: the last one that is no hint."""
    lines = [line for line in text.splitlines() if line.startswith("error")] or text.splitlines()
    return lines[-1] if lines else ""


def dp_in_bf16(bench: Bench) -> str:
    """Both replicas of torch's DataParallel compute in bf16, in threads that inherit no type."""
    (rank,) = bench.ask("dp", model="resnet18", image_size=64, precision="amp-bf16")
    need(rank["types"] == ["torch.bfloat16"], f"layers compute in {rank['types']}")
    need(rank["seen"] == [BATCH] * REPLICAS, f"the replicas saw {rank['seen']} images")
    return f"{REPLICAS} replicas, {rank['types'][0]}"


def gradients(bench: Bench) -> str:
    """Two replicas in one process, and two processes, give the gradients of one device."""
    (single,) = bench.ask("single", batch_per_gpu=BATCH * REPLICAS, precision="fp32")
    worst = {}
    for mode in ("dp", "ddp"):
        for rank in bench.ask(mode, precision="fp32"):
            worst[mode] = difference(rank["gradients"], single["gradients"])
            need(worst[mode] < SUM_ERROR, f"{mode} differs by {worst[mode]:.1e}")
    return ", ".join(f"{mode} differs by {found:.1e}" for mode, found in worst.items())


def difference(found: dict[str, list[float]], expected: dict[str, list[float]]) -> float:
    """The largest difference of two sets of gradients, relative to the largest value of each."""
    need(found.keys() == expected.keys(), "other parameters have a gradient")
    return max(
        max(abs(one - other) for one, other in zip(found[name], values, strict=True))
        / max(max(map(abs, values)), 1e-12)
        for name, values in expected.items()
    )


def clocks(bench: Bench) -> str:
    """The events agree with the host's clock in every mode. Every other run is looked at too."""
    bench.only_on_a_gpu()
    shared = ("--gpus", REPLICAS, "--oversubscribe")
    rows = bench.run_well("clocks", "--mode", "single,dp,ddp", *shared, "--rounds", 1)
    rows += bench.run_well("nccl", "--mode", "ddp", "--gpus", 1, "--rounds", 1)
    need(rows[-1]["backend"] == "nccl", f"ddp ran over {rows[-1]['backend']}")
    return f"no clock-mismatch in {len(rows)} runs"


def images(bench: Bench) -> str:
    """Loader workers are forked in a process that holds a communicator of NCCL."""
    photos = bench.folder / "photos"
    for number in range(64):
        folder = photos / ("cat" if number % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (80, 80), (4 * number, 90, 200)).save(folder / f"{number}.jpg")
    options = ("--data", photos, "--workers-per-gpu", 2, "--rounds", 1)
    (row,) = bench.run_well("images", "--mode", "ddp", "--gpus", 1, *options)
    need(row["dataset_samples"] == "64", f"{row['dataset_samples']} images")
    return f"64 images, ddp over {row['backend']}"


def out_of_memory(bench: Bench) -> str:
    """A full GPU is named as such, and the next run finds it empty."""
    model = "fills_the_gpu" if bench.device == "cuda" else "allocates_too_much"
    own = ("--model", f"tests.hurtmodels:{model}", "--mode", "single", "--rounds", 1)
    rows, err = bench.run("memory", *own)
    need([row["status"] for row in rows] == ["failed"], "it did not fail")
    need("out of memory" in err, f"it says: {last_line(err)}")
    need("--batch-per-gpu" in err, "no hint about the batch")
    bench.run_well("memory-after", "--mode", "single", "--rounds", 1)
    return "named, with a hint; the next run succeeds"


def precisions(bench: Bench) -> str:
    """TF32 is off in fp32, and on in tf32, in matrix products and in convolutions."""
    (exact,) = bench.ask("single", "tests.gradients:product_errors", precision="fp32")
    for name, error in exact.items():
        need(error < FP32_ERROR, f"{name} in fp32 is off by {error:.1e}")
    if bench.device == "cpu" or bench.machine.gpus[0].capability < (8, 0):
        return "fp32 is exact; no tf32 here"
    (rough,) = bench.ask("single", "tests.gradients:product_errors", precision="tf32")
    for name, error in rough.items():
        need(FP32_ERROR < error < TF32_ERROR, f"{name} in tf32 is off by {error:.1e}")
    return f"fp32 {max(exact.values()):.1e}, tf32 {max(rough.values()):.1e}"


def compiled(bench: Bench) -> str:
    """torch.compile works on this machine."""
    (row,) = bench.run_well("compiled", "--mode", "single", "--compile", "--rounds", 1)
    need(row["compile_s"], "the row does not say how long it took")
    return f"in {float(row['compile_s']):.0f} s, {row['recompiles']} recompiles"


def noise(bench: Bench) -> str:
    """No difference is found between equal runs."""
    bench.run_well("noise", "--mode", "single", "--aa", "--rounds", 3)
    out = bench.folder / "noise"
    answer = subprocess.run(
        [sys.executable, "-m", "mgpubench", "compare", str(out), "--format", "json"],
        capture_output=True,
        text=True,
        timeout=bench.left_s,
    ).stdout
    (versus,) = (row["versus_baseline"] for row in json.loads(answer) if row["versus_baseline"])
    words = f"ratio of equal runs {versus['ratio']:.3f}: {versus['verdict']}"
    need(versus["verdict"] not in ("faster", "slower"), words)
    return words


CHECKS: dict[str, Callable[[Bench], str]] = {
    "dp-bf16": dp_in_bf16,
    "gradients": gradients,
    "clocks": clocks,
    "images": images,
    "out-of-memory": out_of_memory,
    "precisions": precisions,
    "compile": compiled,
    "noise": noise,
}


def main(arguments: Sequence[str]) -> int:
    """Make the checks, and return the exit code: 1 if one is not `ok` or skipped."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS")
    # Python 3.11 takes no name at all for the name [].
    parser.add_argument("checks", nargs="*", choices=[*CHECKS, []], metavar="NAME")
    given = parser.parse_args(arguments)
    ends_s = time.monotonic() + given.limit
    # One GPU, however many there are.
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    os.environ["CUDA_VISIBLE_DEVICES"] = first
    with (
        tempfile.TemporaryDirectory(prefix="gpu-check-") as folder,
        StopSignal().installed() as stop,
        open_supervisor(stop, TRAINING) as supervisor,
    ):
        machine, _ = supervisor.call(DESCRIBE_TORCH)
        if given.device == "cuda" and not machine.gpus:
            print(f"error: no GPU: {machine.cuda_reason}", file=sys.stderr)
            print("hint: --device cpu makes the checks that a CPU can make", file=sys.stderr)
            return 2
        bench = Bench(given.device, machine, supervisor, Path(folder), ends_s)
        verdicts = [make(bench, name) for name in given.checks or CHECKS]
    return int(bool({"BAD ", "late"} & set(verdicts)))


def make(bench: Bench, name: str) -> str:
    """Make one check, print its line, and return its verdict."""
    began_s = time.monotonic()
    if began_s >= bench.ends_s:
        verdict, words = "late", "the time is over"
    else:
        verdict, words = judge(bench, CHECKS[name])
    print(f"{verdict}  {name}: {words} ({time.monotonic() - began_s:.0f} s)", flush=True)
    return verdict


def judge(bench: Bench, check: Callable[[Bench], str]) -> tuple[str, str]:
    """The verdict of a check, and what there is to say."""
    try:
        return "ok  ", check(bench)
    except Skipped as reason:
        return "skip", str(reason)
    except subprocess.TimeoutExpired:
        return "late", "it took until the time was over"
    except (Wrong, BenchError) as error:
        return "BAD ", getattr(error, "message", str(error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
