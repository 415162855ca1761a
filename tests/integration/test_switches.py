"""What torch, or a user's module, changes in a whole process is set back."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from mgpubench.launch.signals import StopSignal
from mgpubench.launch.supervisor import open_supervisor
from mgpubench.launch.switches import kept
from mgpubench.session.workers import TORCH
from mgpubench.training.devices import Part
from mgpubench.training.models.own import own_model
from mgpubench.training.models.switches import SWITCHES
from mgpubench.training.preflight import inspect_model
from mgpubench.training.trainable import build_model
from tests.conftest import make_cpu_config

STATEMENTS = {
    "anomaly detection": "torch.autograd.set_detect_anomaly(True)",
    "default dtype": "torch.set_default_dtype(torch.float64)",
    "default device": "torch.set_default_device('cpu')",
    "gradients": "torch.set_grad_enabled(False)",
    "deterministic": "torch.use_deterministic_algorithms(True, warn_only=True)",
    "warnings": "torch.set_warn_always(True)",
    "cudnn": "torch.backends.cudnn.enabled = False; torch.backends.cudnn.deterministic = True",
    "cudnn limit": "torch.backends.cudnn.benchmark_limit = 1",
    "mkldnn": "torch.backends.mkldnn.enabled = False",
    "reduction": "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False",
    "attention": "torch.backends.cuda.enable_flash_sdp(False)",
    "fast path": "torch.backends.mha.set_fastpath_enabled(False)",
    "autocast": "torch.set_autocast_enabled('cpu', True)",
    "autocast dtype": "torch.set_autocast_dtype('cuda', torch.bfloat16)",
    "backward threads": "torch._C._set_multithreading_enabled(False)",
    "einsum": "torch.backends.opt_einsum.enabled = not torch.backends.opt_einsum.enabled",
    "debugging ddp": "torch.distributed.set_debug_level(torch.distributed.DebugLevel.DETAIL)",
    "start method": "multiprocessing.set_start_method('spawn', force=True)",
    "warnings as errors": "warnings.simplefilter('error', FutureWarning)",
    "cores": "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
    "current folder": "os.chdir('/')",
    "garbage": "gc.disable(); gc.set_threshold(10)",
    "profiler": "sys.setprofile(lambda *_: None)",
    "environment": "os.environ['NCCL_P2P_DISABLE'] = '1'",
    "launcher": "os.environ['MASTER_ADDR'] = 'elsewhere'",
}
"""What modules of users say at their top, or in their functions."""

MODULE = """
import gc, multiprocessing, os, sys, warnings
import torch
{at_the_top}
def net():
    {inside}
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 5))
"""


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Writes the module of an own model, and returns the name of the model."""
    monkeypatch.chdir(tmp_path)
    names = []

    def write(at_the_top: str = "", inside: str = "pass") -> str:
        name = f"turns_{tmp_path.name.replace('-', '_')}_{len(names)}"
        names.append(name)
        text = MODULE.format(at_the_top=at_the_top, inside=inside)
        (tmp_path / f"{name}.py").write_text(text)
        return f"{name}:net"

    yield write
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]
    for name in names:
        sys.modules.pop(name, None)


def values() -> dict[str, object]:
    return {switch.name: switch.read() for switch in SWITCHES}


@pytest.mark.parametrize("place", ["at_the_top", "inside"])
@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_a_switch_that_an_own_model_turns_is_turned_back(
    statement: str, place: str, write_module: Callable[..., str]
) -> None:
    before = values()
    name = write_module(**{place: statement})
    assert isinstance(own_model(name), torch.nn.Module)
    assert values() == before


def test_each_statement_would_turn_a_switch() -> None:
    """Or the test above would prove nothing."""
    space = {name: __import__(name) for name in ("gc", "multiprocessing", "os", "sys", "torch")}
    for statement in STATEMENTS.values():
        with kept(SWITCHES) as left:
            exec(statement, {**space, "warnings": warnings})
        # On one core there is nothing to bind.
        assert left or ("affinity" in statement and len(os.sched_getaffinity(0)) == 1), statement


def test_a_function_finds_what_its_module_has_turned(write_module: Callable[..., str]) -> None:
    name = write_module("torch.set_default_dtype(torch.float64)")
    dtypes = [next(own_model(name).parameters()).dtype for _ in range(2)]
    assert dtypes == [torch.float64, torch.float64]
    assert torch.get_default_dtype() == torch.float32


def test_a_model_without_gradients_at_its_making_is_trained(
    write_module: Callable[..., str], part_of: Callable[..., Part]
) -> None:
    name = write_module("torch.set_grad_enabled(False)")
    config = make_cpu_config(model=name)
    assert inspect_model([config]).num_classes == 5
    model = build_model(part_of(config))
    images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    assert model(images)[0].requires_grad


def test_what_torch_changes_in_the_fork_server_is_not_inherited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With OMP_PROC_BIND, OpenMP binds the process that loads it to one core."""
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    with StopSignal().installed() as stop, open_supervisor(stop, TORCH) as supervisor:
        inherited = supervisor.call("tests.hurt:inherited")
    assert inherited == {
        "cores": os.sched_getaffinity(0),
        "folder": os.getcwd(),
        "warnings as errors": 0,
        "start method": None,
    }


def test_a_rank_keeps_the_gpu_that_it_has_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's module may choose GPU 0 in every rank."""
    current = [1]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: current.__setitem__(0, number))
    with kept(SWITCHES):
        torch.cuda.set_device(0)
    assert current == [1]
