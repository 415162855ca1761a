"""What a rank asks of CUDA, and in which order: see `tests.recorder`. No GPU is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from mgpubench.config.run_config import DdpOptions, RunConfig
from mgpubench.launch.supervisor import Supervisor
from mgpubench.results.rank_record import RankRecord
from mgpubench.session.workers import launch_run
from mgpubench.training.data.synthetic import SYNTHETIC_BATCHES
from tests.conftest import make_cpu_config
from tests.recorder import BETWEEN_MARKS_MS, PEAK_BYTES, Call

Ask = Callable[..., list[Any]]

WARMUP, MEASURED = 3, 4

RUNS: dict[str, dict[str, Any]] = {
    "single": {"mode": "single", "num_devices": 1, "device_indices": (2,)},
    "dp": {"mode": "dp", "num_devices": 3, "device_indices": (0, 1, 0)},
    "ddp": {
        "mode": "ddp", "num_devices": 2, "world_size": 2, "device_indices": (3, 1),
        "backend": "nccl",
    },
    "ddp over gloo": {
        "mode": "ddp", "num_devices": 2, "world_size": 2, "device_indices": (0, 0),
        "backend": "gloo",
    },
    "host data": {
        "mode": "dp", "num_devices": 2, "device_indices": (0, 1), "data": "synthetic-host",
        "log_every": 1,
    },
}  # fmt: skip


def config_of(**changes: Any) -> RunConfig:
    values: dict[str, Any] = {
        "device_type": "cuda", "batch_per_device": 2, "num_classes": 10,
        "warmup_steps": WARMUP, "steps": MEASURED,
    }  # fmt: skip
    return make_cpu_config(**{**values, **changes})


@pytest.fixture(scope="module")
def ask(request: pytest.FixtureRequest) -> Ask:
    """What each rank of a run answers to a function of `tests.recorder`."""
    supervisor: Supervisor = request.getfixturevalue("supervisor")

    def run(target: str, config: RunConfig) -> list[Any]:
        return launch_run(supervisor, config, lambda steps: None, f"tests.recorder:{target}")

    return run


class Ranks:
    """The ranks of one run, with the calls that matter for the order."""

    def __init__(self, name: str, ask: Ask) -> None:
        self.config = config_of(**RUNS[name])
        self.ranks: list[tuple[list[Call], RankRecord]] = ask("record_rank", self.config)

    def devices(self, rank: int) -> list[str]:
        """The GPUs of a rank, each once, the first one first."""
        indices = self.config.device_indices
        mine = indices[rank : rank + 1] if self.config.world_size > 1 else indices
        return [f"cuda:{index}" for index in dict.fromkeys(mine)]

    @property
    def timed_steps(self) -> int:
        """Steps between the pause and the end."""
        return self.config.lead_in_steps + self.config.steps

    def window(self, calls: list[Call]) -> slice:
        """From the first mark after the pause to the last one."""
        marks = [place for place, call in enumerate(calls) if call.what == "mark"]
        return slice(marks[-self.timed_steps - 1], marks[-1] + 1)


@pytest.fixture(scope="module", params=RUNS)
def run(request: pytest.FixtureRequest, ask: Ask) -> Ranks:
    """The ranks of one run each."""
    return Ranks(request.param, ask)


def test_a_rank_chooses_its_gpu_before_anything_else(run: Ranks) -> None:
    """C41: otherwise every rank opens a context on GPU 0."""
    for rank, (calls, _) in enumerate(run.ranks):
        assert calls[0] == Call("set_device", run.devices(rank)[0])
        assert {call.what for call in calls} >= {"place", "synchronize", "mark", "elapsed"}


def test_every_device_is_waited_for_before_the_first_mark(run: Ranks) -> None:
    """The barrier comes before, so that no rank waits inside the window for another one."""
    for rank, (calls, _) in enumerate(run.ranks):
        before = [call for call in calls[: run.window(calls).start] if call.what != "prime"]
        waits = [Call("synchronize", device) for device in run.devices(rank)]
        # Over NCCL the barrier has a group of its own, since NCCL's would run on the GPUs.
        group = "gloo" if run.config.backend == "nccl" else "default group"
        barriers = [Call("barrier", group)] if run.config.mode == "ddp" else []
        pause = [*waits, *barriers, *waits]
        assert before[-len(pause) :] == pause


def test_nothing_but_steps_happens_between_the_marks(run: Ranks) -> None:
    for rank, (calls, _) in enumerate(run.ranks):
        inside = calls[run.window(calls)]
        # A step places its batch, and the log of the loss marks its copies and never waits.
        extra = {"place", "copy"} if run.config.log_every else {"place"}
        rest = [call for call in inside if call.what not in extra]
        mark, step = Call("mark", f"stream of {run.devices(rank)[0]}"), Call("step")
        assert rest == [mark, *[step, mark] * run.timed_steps]


def test_events_are_read_after_every_device_has_finished(run: Ranks) -> None:
    for rank, (calls, record) in enumerate(run.ranks):
        devices = run.devices(rank)
        waits = [Call("synchronize", device) for device in devices]
        reads = [Call("elapsed")] * (WARMUP + MEASURED)
        peaks = [Call("peak", device) for device in devices]
        after = [call for call in calls[run.window(calls).stop :] if call.what != "barrier"]
        if run.config.log_every:
            reads.append(Call("wait"))  # for the last line of the loss
        assert after == [*waits, *reads, *peaks]
        assert record.peak_memory_bytes == [PEAK_BYTES] * len(devices)


def test_every_event_is_made_before_the_clock_runs(run: Ranks) -> None:
    for calls, _ in run.ranks:
        before = calls[: run.window(calls).start]
        stream = next(call.of for call in calls if call.what == "mark")
        num_marks = len([call for call in calls if call.what == "mark"])
        assert before.count(Call("prime", stream)) == num_marks
        assert [call.what for call in calls].count("prime") == len(
            [call for call in before if call.what == "prime"]
        )


def test_milliseconds_of_events_become_seconds(run: Ranks) -> None:
    for _, record in run.ranks:
        each_s = BETWEEN_MARKS_MS / 1e3
        assert record.step_times_s == pytest.approx([each_s] * (WARMUP + MEASURED))
        assert record.window_s == pytest.approx(each_s * MEASURED)
        assert record.clock_span_s == pytest.approx(each_s * run.timed_steps)


def test_ddp_gets_the_one_gpu_of_its_rank(ask: Ask) -> None:
    ranks = Ranks("ddp", ask)
    for rank, (calls, _) in enumerate(ranks.ranks):
        assert Call("join", "nccl") in calls
        (wrapped,) = [call.of for call in calls if call.what == "ddp"]
        assert wrapped == f"[device(type='cuda', index={(3, 1)[rank]})]"


def test_batches_in_host_memory_are_pinned(ask: Ask) -> None:
    ranks = Ranks("host data", ask)
    (calls, _) = ranks.ranks[0]
    # Images and labels of four batches, and before the first step.
    pins = [place for place, call in enumerate(calls) if call.what == "pin"]
    assert len(pins) == 2 * SYNTHETIC_BATCHES + 1  # and the lines of the loss
    assert pins[-1] < calls.index(Call("step"))
    placed = calls[ranks.window(calls)].count(Call("place", "cuda:0"))
    assert placed == 2 * ranks.timed_steps


def test_the_peak_does_not_include_what_the_compiler_tries(ask: Ask) -> None:
    config = config_of(mode="dp", num_devices=2, device_indices=(1, 2))
    (calls,) = ask("record_compilation", config)
    assert [call for call in calls if call.what != "place"] == [
        Call("compile", "torch.Size([4, 3, 32, 32])"),
        *(Call("synchronize", "cuda:1"), Call("synchronize", "cuda:2")),
        *(Call("reset_peak", "cuda:1"), Call("reset_peak", "cuda:2")),
    ]


class LooksAtNumbers(nn.Linear):
    """A model that the meta device cannot run."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits."""
        if float(images.sum()) > 1e9:
            raise ValueError("so large")
        return super().forward(images.mean((2, 3)))


def looks_at_numbers() -> nn.Module:
    """For `--model tests.integration.test_call_order:looks_at_numbers`."""
    return LooksAtNumbers(3, 10)


def test_an_own_model_is_tried_on_the_gpu_of_the_runs(ask: Ask) -> None:
    model = "tests.integration.test_call_order:looks_at_numbers"
    (calls,) = ask("record_inspection", config_of(model=model, device_indices=(2,)))
    assert calls[0] == Call("set_device", "cuda:2")
    assert set(calls[1:]) == {Call("place", "cuda:2")}


@pytest.mark.parametrize("hook", ["fp16", "powersgd"])
def test_a_comm_hook_is_tried_on_the_gpu_of_the_runs(ask: Ask, hook: Any) -> None:
    options = DdpOptions(comm_hook=hook)
    config = config_of(mode="ddp", device_indices=(1,), backend="nccl", ddp=options)
    (calls,) = ask("record_hook", config)
    assert calls[:2] == [Call("set_device", "cuda:1"), Call("join", "nccl")]
    assert set(calls[2:]) == {Call("place", "cuda:1")}


def test_deepspeed_is_tried_on_the_gpu_of_the_runs(ask: Ask) -> None:
    config = config_of(mode="deepspeed", device_indices=(1,), backend="nccl")
    (calls,) = ask("record_deepspeed_check", config)
    assert calls == [Call("set_device", "1"), Call("join", "nccl")]
