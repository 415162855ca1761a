"""Fixtures and the leak guard that all tests share."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import settings

from mgpubench.config.machine_facts import Gpu, Machine
from mgpubench.config.run_config import RunConfig
from mgpubench.config.types import MULTI_PROCESS_MODES
from mgpubench.launch.signals import STOPPING_SIGNALS, StopSignal
from mgpubench.launch.supervisor import Supervisor, open_supervisor
from mgpubench.results.rank_record import RankRecord
from mgpubench.results.schema import RunRecord
from mgpubench.session.workers import FSDP, IMAGES
from tests.processes import Command, descendants

# Several tests and their ranks share the cores: a thread that waits leaves them to others. Threads
# that spin there, which is the default, make the suite take twice as long.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

settings.register_profile("default", deadline=None, max_examples=200)
settings.register_profile("soak", deadline=None, max_examples=10_000)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    """An option of the fault matrix."""
    parser.addoption(
        "--write-reliability", action="store_true", help="write docs/reliability.md again"
    )


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say what must not run side by side, and skip what needs more GPUs than there are."""
    wanted = {"gpu": 1, "multigpu": 2}
    marked = [item for item in items if any(item.get_closest_marker(name) for name in wanted)]
    for item in items:
        group = "gpu" if item in marked else shared_fixtures(item)
        if group:
            item.add_marker(pytest.mark.xdist_group(group))
    if not marked:
        return
    import torch

    count = torch.cuda.device_count()
    for item in marked:
        least = max(n for name, n in wanted.items() if item.get_closest_marker(name))
        if count < least:
            reason = f"needs {least} CUDA device(s), {count} visible"
            item.add_marker(pytest.mark.skip(reason=reason))


def shared_fixtures(item: pytest.Item) -> str:
    """Where the fixtures are that this test shares with others, so that they are made only once."""
    used = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009, it is private
    if any(fixtures[-1].scope == "module" for fixtures in used):
        return item.nodeid.partition("::")[0]
    return "simulated" if {"guard", "simulation"} & set(getattr(item, "fixturenames", ())) else ""


def environment() -> dict[str, str]:
    """The environment without what pytest and torch themselves put there."""
    # Older versions of torch set the last one when they start CUDA.
    own = ("PYTEST_", "TORCHINDUCTOR_", "MGPUBENCH_", "CUDA_MODULE_LOADING")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)}


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """A test leaves the environment as it was, and no worker behind."""
    before = environment()
    yield
    assert environment() == before
    left = [p for p in descendants(os.getpid()) if p.is_worker]
    assert not left, f"worker processes left behind: {left}"


def make_cpu_config(**changes: Any) -> RunConfig:
    """The smallest run on a CPU, with changes."""
    devices = changes.get("num_devices", 1)
    has_group = changes.get("mode") in MULTI_PROCESS_MODES
    values: dict[str, Any] = {
        "round": 1,
        "position": 1,
        "mode": "single",
        "effective_mode": "single",
        "device_type": "cpu",
        "num_devices": devices,
        "device_indices": (),
        "world_size": devices if has_group else 1,
        "backend": "gloo" if has_group else "",
        "model": "tiny-cnn",
        "num_classes": 1000,
        "skip_bad_images": False,
        "data": "synthetic",
        "image_size": 32,
        "precision": "fp32",
        "channels_last": False,
        "compiled": False,
        "scaling": "weak",
        "batch_per_device": 4,
        "workers_per_device": 1,
        "workers_per_rank": 1,
        "threads_per_rank": 1,
        "warmup_steps": 1,
        "steps": 4,
        "seed": 0,
        "timeout_s": 120.0,
    }
    return RunConfig(**{**values, **changes})


@pytest.fixture
def cpu_config() -> Callable[..., RunConfig]:
    """`make_cpu_config`, for tests that take fixtures."""
    return make_cpu_config


@pytest.fixture
def rank_record() -> Callable[..., RankRecord]:
    """Makes the record of a rank whose measured steps took the given times."""

    def make(measured_s: list[float], warmup_s: tuple[float, ...] = (), **changes: Any) -> Any:
        steps = [*warmup_s, *measured_s]
        values: dict[str, Any] = {
            "rank": 0,
            "samples": [4] * len(steps),
            "step_times_s": steps,
            "data_waits_s": [0.0] * len(steps),
            "window_s": sum(measured_s),
            "clock_span_s": sum(measured_s),
            "host_span_s": sum(measured_s),
            "peak_memory_bytes": [],
            "final_loss": 6.9,
        }
        return RankRecord(**{**values, **changes})

    return make


def make_run_record(mode: str = "single", throughput: float | None = 100.0, **changes: Any) -> Any:
    """A row of runs.csv: one run of the smallest equal work on GPUs, with changes."""
    devices = changes.get("num_devices", 1 if mode == "single" else 2)
    values: dict[str, Any] = {
        "schema_version": 1,
        "session_id": "s1",
        "round": 1,
        "status": "ok",
        "mode": mode,
        "effective_mode": mode,
        "device_type": "cuda",
        "num_devices": devices,
        "model": "resnet50",
        "data": "synthetic",
        "image_size": 224,
        "precision": "tf32",
        "scaling": "weak",
        "batch_per_device": 64,
        "global_batch": 64 * devices,
        "throughput_samples_per_s": throughput,
        "device_names": f"{devices}x NVIDIA X",
    }
    return RunRecord(**{**values, **changes})


@pytest.fixture
def machine() -> Callable[..., Machine]:
    """Makes a machine with some equal GPUs."""

    def make(num_gpus: int = 0, capability: tuple[int, int] = (8, 0), **changes: Any) -> Machine:
        gpus = tuple(
            Gpu(name="NVIDIA X", uuid=f"GPU-{i}", memory_bytes=2**34, capability=capability)
            for i in range(num_gpus)
        )
        values: dict[str, Any] = {
            "gpus": gpus,
            "cuda_reason": "" if gpus else "Found no NVIDIA driver on your system",
            "cuda_visible_devices": None,
            "cpu_model": "CPU Y",
            "usable_cores": 16,
            "omp_num_threads": None,
        }
        return Machine(**{**values, **changes})

    return make


@pytest.fixture(scope="session")
def supervisor() -> Iterator[Supervisor]:
    """One supervisor, and so one cold start of torch, for all tests."""
    with (
        StopSignal().installed() as stop,
        open_supervisor(stop, (*IMAGES, *FSDP)) as opened,
    ):
        yield opened


@dataclass(frozen=True)
class Here:
    """A `mgpubench` that ran in this process, except for its workers; see `Command`."""

    exit_code: int
    out: str
    err: str
    began_s: float
    ended_s: float

    def wait(self, seconds: float = 0) -> int:
        """The exit code. The command has already ended."""
        return self.exit_code


NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


@pytest.fixture(scope="session")
def run_here(supervisor: Supervisor) -> Callable[..., Here]:
    """Runs `mgpubench` in a folder, with the workers of the shared supervisor: it saves seconds.

    The workers have the environment, and the current folder, of the tests: name paths absolutely.
    """

    @contextmanager
    def lend(
        stop: StopSignal, preload: Sequence[str], variables: Mapping[str, str] = NO_VARIABLES
    ) -> Iterator[Supervisor]:
        if variables:  # a variant needs a fork server with its environment
            with open_supervisor(stop, preload, variables) as own:
                yield own
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(supervisor, "_stop", stop)
            yield supervisor

    def run(*arguments: object, cwd: Path) -> Here:
        from mgpubench.cli import cli

        handlers = {signum: signal.getsignal(signum) for signum in STOPPING_SIGNALS}
        began_s = time.monotonic()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(cwd)
            for module in ("run", "train_prepare", "checkpoints", "comm", "shards"):
                patch.setattr(f"mgpubench.session.{module}.open_supervisor", lend)
            result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        ended_s = time.monotonic()
        # A command that was interrupted ignores further signals, as its process is about to end.
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return Here(result.exit_code, result.stdout, result.stderr, began_s, ended_s)

    return run


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Starts `mgpubench` in the background, in the test's folder; ends it when the test ends."""
    started = []

    def start_one(*arguments: object, **env: str) -> Command:
        command = Command(*arguments, cwd=tmp_path, env=env)
        started.append(command)
        return command

    yield start_one
    for command in started:
        command.kill()


@pytest.fixture
def photos(tmp_path: Path) -> Callable[..., Path]:
    """Makes an ImageFolder with classes cat and dog of some 40x40 JPEGs each."""

    def make(cat: int = 4, dog: int = 4) -> Path:
        from PIL import Image

        root = tmp_path / "photos"
        for name, count in (("cat", cat), ("dog", dog)):
            (root / name).mkdir(parents=True)
            for number in range(count):
                colour = (40 * number % 256, 120, 200 if name == "cat" else 30)
                Image.new("RGB", (40, 40), colour).save(root / name / f"{number}.jpg")
        return root

    return make
