"""The loop: what is run, in which order, and which times belong to the window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise, repeat
from operator import attrgetter

import pytest
import torch

from mgpubench.config.run_config import RunConfig
from mgpubench.results.rank_record import RankRecord
from mgpubench.runners.cpu_replicas import CpuReplicas
from mgpubench.training.devices import Part
from mgpubench.training.loop import Trace, measure, train
from mgpubench.training.technique import Wrapped
from mgpubench.training.torch_settings import apply_settings, set_up_process
from mgpubench.training.trainable import build_model

Make = Callable[..., RunConfig]
PartOf = Callable[..., Part]
Train = Callable[[RunConfig], Trace]


class CountingClock:
    """Every mark is one second after the one before it."""

    def __init__(self) -> None:
        self.marks = 0

    def mark(self) -> None:
        self.marks += 1

    def intervals_s(self) -> list[float]:
        return [float(b - a) for a, b in pairwise(range(self.marks))]


@pytest.fixture
def log() -> list[str]:
    """What the loop of a test did, in order."""
    return []


@pytest.fixture
def train_logged(log: list[str], part_of: PartOf, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Runs the loop with steps that do nothing, and notes what it does."""

    def step(batches: Iterator[object]) -> torch.Tensor:
        next(batches)
        log.append("step")
        return torch.tensor(1.0)

    def run(config: RunConfig) -> Trace:
        batches = repeat((torch.zeros(2), torch.zeros(2)))
        return train(part_of(config), step, batches, lambda: log.append("barrier"))

    monkeypatch.setattr(Part, "synchronize", lambda part: log.append("synchronize"))
    monkeypatch.setattr(
        "mgpubench.training.loop.make_clock", lambda device, num_steps: CountingClock()
    )
    return run


def test_nothing_but_steps_happens_between_the_pause_and_the_end(
    cpu_config: Make, train_logged: Train, log: list[str]
) -> None:
    train_logged(cpu_config(warmup_steps=3, steps=3))
    pause = ["synchronize", "barrier", "synchronize"]
    assert log == ["step"] * 2 + pause + ["step"] * 4 + ["synchronize"]


def test_every_step_has_a_time_and_the_span_begins_at_the_pause(
    cpu_config: Make, train_logged: Train
) -> None:
    trace = train_logged(cpu_config(warmup_steps=3, steps=3))
    assert trace.step_times_s == [1.0] * 6
    assert len(trace.data_waits_ns) == 6
    assert trace.samples == [2] * 6
    assert trace.clock_span_s == 4.0


@pytest.mark.parametrize(
    ("warmup", "queue", "lead_in"),
    [(20, 8, 8), (20, 64, 20), (20, 0, 1), (0, 8, 0), (1, 0, 1)],
)
def test_the_lead_in_is_as_long_as_the_loaders_queue(
    cpu_config: Make, train_logged: Train, log: list[str], warmup: int, queue: int, lead_in: int
) -> None:
    config = cpu_config(warmup_steps=warmup, steps=7, data="photos", workers_per_rank=queue // 2)
    assert config.lead_in_steps == lead_in
    train_logged(config)
    pause = log.index("barrier")
    assert log[:pause].count("step") == warmup - lead_in
    assert log[pause:].count("step") == lead_in + 7


@pytest.fixture
def record(cpu_config: Make, part_of: PartOf) -> RankRecord:
    """A real run in this process."""
    seen = []
    config = cpu_config(warmup_steps=3, steps=5)
    part = replace(part_of(config), on_step=lambda: seen.append("step"))
    model = build_model(part)
    record = measure(part, Wrapped(model=model, plain=model))
    assert len(seen) == 8
    return record


def set_level(level: str, precision: str) -> None:
    if not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("this torch has no levels of precision: they came with 2.9")
    attrgetter(f"backends{level}")(torch).fp32_precision = precision


def precision_of(level: str) -> str:
    found: str = attrgetter(f"backends{level}")(torch).fp32_precision
    return found


@pytest.mark.parametrize(
    "set_otherwise",
    [
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
        lambda: set_level("", "tf32"),
        lambda: set_level(".cudnn", "tf32"),
        lambda: set_level(".cudnn.conv", "tf32"),
        lambda: set_level(".cuda.matmul", "tf32"),
        lambda: set_level(".mkldnn", "bf16"),
        lambda: set_level(".mkldnn.conv", "bf16"),
        lambda: set_level(".mkldnn.matmul", "bf16"),
        lambda: setattr(torch.backends.cudnn, "benchmark", True),
        lambda: torch.set_num_threads(2),
    ],
)
def test_what_the_row_says_holds_even_if_the_users_module_sets_something_else(
    cpu_config: Make, part_of: PartOf, set_otherwise: Callable[[], object]
) -> None:
    part = part_of(cpu_config(threads_per_rank=1))
    set_up_process(part)
    set_otherwise()  # as many modules do when they are imported
    model = build_model(part)
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.backends.cuda.matmul.allow_tf32 is False
    assert torch.backends.cudnn.allow_tf32 is False
    assert torch.backends.cudnn.benchmark is False
    if hasattr(torch.backends, "fp32_precision"):
        assert {precision_of(".mkldnn.conv"), precision_of(".mkldnn.matmul")} <= {"none", "ieee"}
        assert {precision_of(".cudnn.conv"), precision_of(".cuda.matmul")} <= {"none", "ieee"}
    assert torch.get_num_threads() == 1
    assert CpuReplicas(model, 2)._threads._initargs == (1,)


def test_tf32_and_cudnn_benchmark_are_switched_on_if_asked_for(cpu_config: Make) -> None:
    apply_settings(cpu_config(precision="tf32", cudnn_benchmark=True))
    assert torch.get_float32_matmul_precision() == "high"
    assert torch.backends.cuda.matmul.allow_tf32 is True
    assert torch.backends.cudnn.allow_tf32 is True
    assert torch.backends.cudnn.benchmark is True
    apply_settings(cpu_config())
    assert torch.backends.cudnn.allow_tf32 is False


def test_the_window_is_the_sum_of_the_measured_steps(record: RankRecord) -> None:
    assert len(record.step_times_s) == len(record.data_waits_s) == 8
    assert record.window_s == pytest.approx(sum(record.step_times_s[3:]), rel=1e-12)
    assert all(
        0 <= wait <= step
        for wait, step in zip(record.data_waits_s, record.step_times_s, strict=True)
    )


def test_both_clocks_agree_on_a_cpu(record: RankRecord) -> None:
    assert record.clock_span_s == pytest.approx(record.host_span_s, rel=0.05)
    assert record.clock_span_s > record.window_s


def test_the_loss_is_that_of_random_guessing_over_1000_classes(record: RankRecord) -> None:
    assert record.final_loss == pytest.approx(6.9, abs=0.5)  # ln 1000 = 6.908


def test_a_cpu_has_no_peak_memory(record: RankRecord) -> None:
    assert record.peak_memory_bytes == []
