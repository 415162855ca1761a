"""A recorder over torch.cuda: what a process asks of CUDA, and in which order; run in workers.

Nothing is asked of a real GPU: tensors that would go to one stay on the CPU. So any machine shows
the order of the calls, and none shows what they cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import MagicMock, patch

import torch
import torch.distributed as dist
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from mgpubench.config.run_config import RunConfig
from mgpubench.results.rank_record import RankRecord
from mgpubench.runners import comm_hooks, ddp, deepspeed_check
from mgpubench.training.compilation import compile_apart
from mgpubench.training.preflight import inspect_model
from mgpubench.training.rank import make_part, run_rank
from mgpubench.training.step import TrainStep

BETWEEN_MARKS_MS = 2.0
PEAK_BYTES = 4096


class Call(NamedTuple):
    """One thing that was asked of CUDA or of the process group."""

    what: str
    of: str = ""


class Recorder:
    """The calls so far."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def note(self, what: str, of: object = "", answer: Any = None) -> Any:
        """Add a call, and give its answer."""
        self.calls.append(Call(what, str(of)))
        return answer


@contextmanager
def recording() -> Iterator[list[Call]]:
    """Record what this process asks of CUDA, and give the list of calls."""
    recorder = Recorder()
    with ExitStack() as stack:
        for target, name, function in _replacements(recorder):
            stack.enter_context(patch.object(target, name, function))
        stack.enter_context(_StayHere(recorder))
        yield recorder.calls


def _replacements(recorder: Recorder) -> list[tuple[Any, str, Any]]:
    """What is recorded, instead of done or before it is."""
    note = recorder.note
    call_step, join, barrier = TrainStep.__call__, dist.init_process_group, dist.barrier

    def step(self: Any, batches: Any) -> Tensor:
        note("step")
        return call_step(self, batches)

    def init_process_group(backend: str, **options: Any) -> None:
        note("join", backend)
        join("gloo", **options)

    def meet(group: Any = None) -> None:
        # The default group is the one whose backend was asked for.
        note("barrier", "default group" if group is None else dist.get_backend(group))
        barrier(group=group)

    def wrap(model: Any, device_ids: Any = None, **options: Any) -> Any:
        note("ddp", device_ids)
        return torch.nn.parallel.DistributedDataParallel(model, **options)

    return [
        (torch.cuda, "is_available", lambda: False),
        (torch.cuda, "set_device", partial(note, "set_device")),
        (torch.cuda, "synchronize", partial(note, "synchronize")),
        (torch.cuda, "current_stream", lambda device: f"stream of {device}"),
        (torch.cuda, "max_memory_allocated", partial(note, "peak", answer=PEAK_BYTES)),
        (torch.cuda, "reset_peak_memory_stats", partial(note, "reset_peak")),
        (torch.cuda, "Event", partial(_Event, recorder)),
        (TrainStep, "__call__", step),
        (dist, "init_process_group", init_process_group),
        (dist, "barrier", meet),
        (ddp, "DistributedDataParallel", wrap),
    ]


class _Event:
    """An event of CUDA, which makes it at its first record: that is noted as `prime`.

    Later records are a `mark` of a clock, or a `copy` if the event measures no time. The first
    query after a record finds that the device has not come so far, and the second that it has.
    """

    def __init__(self, recorder: Recorder, enable_timing: bool = False) -> None:
        self._note, self._timing = recorder.note, enable_timing
        self._word, self._num_queries = "prime", 0

    def record(self, stream: object = "current stream") -> None:
        self._note(self._word, stream)
        self._word, self._num_queries = "mark" if self._timing else "copy", 0

    def query(self) -> bool:
        self._num_queries += 1
        return self._num_queries > 1

    def synchronize(self) -> None:
        if self._num_queries < 2:
            self._note("wait")

    def elapsed_time(self, later: _Event) -> float:
        assert self._timing
        assert later._timing
        self._note("elapsed")
        return BETWEEN_MARKS_MS


class _StayHere(TorchFunctionMode):
    """Notes each tensor that goes to a GPU or to pinned memory, and keeps it on the CPU."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._note = recorder.note

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function is Tensor.pin_memory or kwargs.pop("pin_memory", False):
            self._note("pin")
            if function is Tensor.pin_memory:
                return args[0]
        if isinstance(kwargs.get("device"), str):
            kwargs["device"] = torch.device(kwargs["device"])
        return function(*tree_map(self._here, args), **tree_map(self._here, kwargs))

    def _here(self, value: Any) -> Any:
        if not isinstance(value, torch.device) or value.type != "cuda":
            return value
        self._note("place", value)
        return torch.device("cpu")


def record_rank(
    config: RunConfig, rank: int, runner: str, folder: Path, listing: Path
) -> tuple[list[Call], RankRecord]:
    """A whole rank of a run."""
    with recording() as calls:
        record = run_rank(config, rank, runner, folder, listing)
    return calls, record


def record_compilation(
    config: RunConfig, rank: int, runner: str, folder: Path, listing: Path
) -> Any:
    """The pass in which a model is compiled, without a compiler."""
    part = make_part(config, rank, folder, listing)
    with recording() as calls:
        compile_apart(part, lambda batch: calls.append(Call("compile", str(batch[0].shape))))
    return calls


def record_inspection(
    config: RunConfig, rank: int, runner: str, folder: Path, listing: Path
) -> Any:
    """What is asked about a model before the first run."""
    with recording() as calls:
        inspect_model([config])
    return calls


def record_hook(
    config: RunConfig, rank: int, runner: str, folder: Path, listing: Path
) -> list[Call]:
    """The try of a comm hook. The group says that it has the backend of the configuration."""
    with recording() as calls, patch.object(dist, "get_backend", lambda: config.backend):
        comm_hooks.check_hook(config)
    return calls


def record_deepspeed_check(
    config: RunConfig, rank: int, runner: str, folder: Path, listing: Path
) -> list[Call]:
    """The try of DeepSpeed, without DeepSpeed."""
    wrap = MagicMock()
    wrap.return_value.device = torch.device("cpu")
    with (
        recording() as calls,
        patch.object(deepspeed_check, "find_ninja"),
        patch.object(deepspeed_check, "_refuse_missing"),
        patch.object(deepspeed_check, "wrap", wrap),
    ):
        deepspeed_check.check_deepspeed(config)
    return calls
