"""What was measured is shown, also if it cannot be saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mgpubench.config.machine_facts import Machine
from mgpubench.errors import BenchError, RunFailed
from mgpubench.launch.events import EVENTS_FILE, EventWriter
from mgpubench.launch.loss_lines import LossReader, rank_sources
from mgpubench.results.rank_record import RankRecord
from mgpubench.results.schema import ModelFacts
from mgpubench.results.training import EpochRecord
from mgpubench.session import recorder
from mgpubench.session.prepare import Workload
from mgpubench.session.recorder import Recorder, Sitting
from mgpubench.session.trainer import _Watch
from tests.conftest import make_cpu_config

NO_SPACE = BenchError("out/steps.csv cannot be written: No space left on device")


class Shown:
    """A display that remembers what it was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((name, arguments))

    def named(self, name: str) -> list[Any]:
        return [arguments for called, arguments in self.calls if called == name]


class FullDisk:
    """A session to which nothing can be written."""

    id = "s1"
    folder = Path("out")

    def append(self, *arguments: object) -> None:
        raise NO_SPACE

    def append_to(self, name: str, records: list[object]) -> None:
        if records:
            raise NO_SPACE


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def on_full_disk(machine: Callable[..., Machine], shown: Shown) -> Recorder:
    facts = ModelFacts(num_parameters=7, parameter_bytes=28, num_classes=10, digest="")
    workload = Workload(machine(), "none", {"tiny-cnn": facts}, {})
    session: Any = FullDisk()
    display: Any = shown
    return Recorder(session, workload, display, Sitting())


def test_figures_that_cannot_be_saved_are_shown(
    on_full_disk: Recorder,
    shown: Shown,
    rank_record: Callable[..., RankRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four steps of 4 samples in 0.1 s each are 40 samples/s."""
    ranks = [rank_record([0.1] * 4, (0.2,))]
    monkeypatch.setattr(recorder, "launch_run", lambda *arguments, **named: ranks)
    supervisor: Any = None
    with pytest.raises(BenchError, match="No space left"):
        on_full_disk.run(supervisor, make_cpu_config())
    ((record, error),) = shown.named("end_run")
    assert record.throughput_samples_per_s == pytest.approx(40.0)
    assert error is None
    assert shown.named("notice") == [("the line above could not be saved, and is in no file",)]


def test_the_cause_of_a_failure_that_cannot_be_saved_is_shown(
    on_full_disk: Recorder, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise RunFailed("single x1: rank 0: ValueError: wrong")

    monkeypatch.setattr(recorder, "launch_run", fail)
    supervisor: Any = None
    with pytest.raises(BenchError, match="No space left"):
        on_full_disk.run(supervisor, make_cpu_config())
    ((_, error),) = shown.named("end_run")
    assert error.message == "single x1: rank 0: ValueError: wrong"


def test_an_epoch_that_cannot_be_saved_is_shown(shown: Shown, tmp_path: Path) -> None:
    record: Any = SimpleNamespace(epoch=1)
    trainer: Any = SimpleNamespace(
        session=FullDisk(),
        call=SimpleNamespace(display=shown),
        record_of=lambda config, event: record,
    )
    config: Any = SimpleNamespace(
        run=SimpleNamespace(num_nodes=1),
        options=SimpleNamespace(epochs=1),
        saves=lambda epoch: False,
    )
    watch = _Watch(trainer, config, tmp_path, LossReader(rank_sources(tmp_path, [0])))
    EventWriter(tmp_path / EVENTS_FILE).write({"epoch": 1})
    with pytest.raises(BenchError, match="No space left"):
        watch.record_events()
    assert shown.named("on_epoch") == [(record,)]
    expected: list[EpochRecord] = [record]
    assert watch.epochs == expected
    assert len(shown.named("notice")) == 1
