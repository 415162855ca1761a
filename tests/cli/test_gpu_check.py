"""`scripts/gpu check` on a CPU: its lines, its verdicts, and that it finds what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mgpubench.errors import RunFailed
from scripts.benchmarks import gpu_check
from scripts.benchmarks.gpu_check import Bench, Skipped, Wrong

ROOT = Path(__file__).parents[2]


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scripts.benchmarks.gpu_check", *arguments],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )


def test_on_a_cpu_it_goes_as_far_as_it_can() -> None:
    done = check("--device", "cpu", "dp-bf16", "gradients", "clocks", "precisions")
    assert done.returncode == 0, done.stderr
    verdicts = [line.split(" (")[0] for line in done.stdout.splitlines()]
    assert verdicts[0] == "ok    dp-bf16: 2 replicas, torch.bfloat16"
    assert verdicts[1].startswith("ok    gradients: dp differs by ")
    assert verdicts[2:] == [
        "skip  clocks: it needs a GPU",
        "ok    precisions: fp32 is exact; no tf32 here",
    ]


def test_without_a_gpu_it_says_how_to_check_the_rest() -> None:
    done = check()
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].startswith("error: no GPU: ")
    assert "--device cpu" in done.stderr


def bench(left_s: float = 60.0, **changes: Any) -> Bench:
    nothing: Any = None
    values: dict[str, Any] = {"device": "cuda", "folder": Path("unused"), **changes}
    return Bench(machine=nothing, supervisor=nothing, ends_s=time.monotonic() + left_s, **values)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Wrong("ddp differs by 1.0e+00"), "BAD   noise: ddp differs by 1.0e+00 ("),
        (RunFailed("rank 0: out of memory", ""), "BAD   noise: rank 0: out of memory ("),
        (Skipped("it needs a GPU"), "skip  noise: it needs a GPU ("),
        (
            subprocess.TimeoutExpired("run", 1),
            "late  noise: it took until the time was over (",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_end_of_a_check_has_a_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, error: Exception, line: str
) -> None:
    def fail(bench: Bench) -> str:
        raise error

    monkeypatch.setitem(gpu_check.CHECKS, "noise", fail)
    assert gpu_check.make(bench(), "noise") == line[:4]
    assert capsys.readouterr().out.startswith(line)


def test_no_check_begins_when_the_time_is_over(capsys: Any) -> None:
    assert gpu_check.make(bench(left_s=0.0), "compile") == "late"
    assert "compile: the time is over" in capsys.readouterr().out


class Answers:
    """What the ranks of each mode would answer."""

    def __init__(self, **by_mode: Any) -> None:
        self._by_mode = by_mode

    def __call__(self, bench: Bench, mode: str, *arguments: Any, **changes: Any) -> Any:
        return self._by_mode[changes["precision"] if mode == "single" and arguments else mode]


GOOD = {"gradients": {"weight": [1.0, -2.0]}}


@pytest.mark.parametrize(
    ("name", "answers", "words"),
    [
        (
            "dp-bf16",
            {"dp": [{"types": ["torch.float16"], "seen": [8, 8]}]},
            "layers compute in ['torch.float16']",
        ),
        ("dp-bf16", {"dp": [{"types": ["torch.bfloat16"], "seen": [16]}]}, "saw [16] images"),
        (
            "gradients",
            {
                "single": [GOOD],
                "dp": [GOOD],
                "ddp": [GOOD, {"gradients": {"weight": [1.0, -2.001]}}],
            },
            "ddp differs by 5.0e-04",
        ),
        (
            "gradients",
            {"single": [GOOD], "dp": [{"gradients": {}}], "ddp": []},
            "other parameters have a gradient",
        ),
        ("precisions", {"fp32": [{"conv": 1e-3}]}, "conv in fp32 is off by 1.0e-03"),
    ],
)
def test_what_is_wrong_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, answers: Any, words: str
) -> None:
    ask = Answers(**answers)
    monkeypatch.setattr(Bench, "ask", lambda bench, *args, **changes: ask(bench, *args, **changes))
    verdict, found = gpu_check.judge(bench(), gpu_check.CHECKS[name])
    assert (verdict, words in found) == ("BAD ", True), found
