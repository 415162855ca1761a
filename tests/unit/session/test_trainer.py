"""The row of an epoch is written once, whether or not its checkpoint was finished."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mgpubench.config.train_request import TrainOptions
from mgpubench.launch.events import EVENTS_FILE, EventWriter
from mgpubench.launch.loss_lines import LossLine, LossReader, rank_sources
from mgpubench.session import trainer
from mgpubench.session.trainer import Trainer

SAVED_EPOCHS = {1, 3}


class Rows:
    """A trainer that keeps what it is given to write and to show."""

    sitting = 1
    first_epoch = 2

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self.shown: list[int] = []
        self.session = SimpleNamespace(append_to=self._append_to)
        self.first_epoch = 2
        self.call = SimpleNamespace(display=SimpleNamespace(on_epoch=self._on_epoch))

    def record_of(self, config: object, event: dict[str, Any]) -> SimpleNamespace:
        return SimpleNamespace(epoch=event["epoch"], event=event)

    def _append_to(self, name: str, records: list[SimpleNamespace]) -> None:
        self.written += [record.event for record in records]

    def _on_epoch(self, record: SimpleNamespace) -> None:
        self.shown.append(record.epoch)


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def watch(rows: Rows, tmp_path: Path) -> trainer._Watch:
    config = SimpleNamespace(
        run=SimpleNamespace(num_nodes=1),
        options=SimpleNamespace(epochs=3),
        saves=lambda epoch: epoch in SAVED_EPOCHS,
    )
    losses = LossReader(rank_sources(tmp_path, [0]))
    return trainer._Watch(cast(Trainer, rows), cast(Any, config), tmp_path, losses)


def test_a_row_waits_for_the_lines_of_loss_of_other_machines(
    rows: Rows, events: EventWriter, tmp_path: Path
) -> None:
    """Epoch 4 is the second one of this call, and ends with step 20 of it."""
    config: Any = SimpleNamespace(
        run=SimpleNamespace(num_nodes=2),
        options=SimpleNamespace(epochs=4),
        steps_per_epoch=10,
        saves=lambda epoch: False,
    )
    losses: Any = SimpleNamespace(new_lines=list, last_step=10)
    watch = trainer._Watch(cast(Trainer, rows), config, tmp_path, losses)
    events.write({"epoch": 3})
    events.write({"epoch": 4})
    watch.record_events()
    assert rows.shown == [3]
    losses.last_step = 20
    watch.record_events()
    assert rows.shown == [3, 4]
    events.write({"epoch": 5})
    watch.record_events()
    assert rows.shown == [3, 4]
    watch.finish()  # the other machine is lost
    assert rows.shown == [3, 4, 5]


@pytest.fixture
def events(tmp_path: Path) -> EventWriter:
    return EventWriter(tmp_path / EVENTS_FILE)


def test_a_row_waits_for_its_checkpoint(
    watch: trainer._Watch, events: EventWriter, rows: Rows
) -> None:
    events.write({"epoch": 1, "top1": 0.5})
    watch.record_events()
    assert rows.written == []
    events.write({"checkpoint_save_s": 0.25})
    watch.record_events()
    watch.finish()
    assert rows.written == [{"epoch": 1, "top1": 0.5, "checkpoint_save_s": 0.25}]
    assert rows.shown == [1]


def test_an_epoch_without_a_checkpoint_is_written_at_once(
    watch: trainer._Watch, events: EventWriter, rows: Rows
) -> None:
    events.write({"epoch": 2})
    watch.record_events()
    assert rows.written == [{"epoch": 2}]


def test_an_epoch_has_its_row_if_the_training_ends_while_its_checkpoint_is_written(
    watch: trainer._Watch, events: EventWriter, rows: Rows
) -> None:
    events.write({"epoch": 1})
    events.write({"checkpoint_save_s": 0.5})
    events.write({"epoch": 2})
    events.write({"epoch": 3})
    watch.finish()
    assert rows.written == [{"epoch": 1, "checkpoint_save_s": 0.5}, {"epoch": 2}, {"epoch": 3}]
    assert rows.shown == [1, 2, 3]


@pytest.mark.parametrize(
    ("precision", "loss", "ends"),
    [
        ("fp32", float("inf"), True),
        ("fp32", float("nan"), True),
        ("fp32", 2.5, False),
        ("amp-fp16", float("inf"), False),
    ],
)
def test_a_loss_that_is_not_finite_ends_a_training_unless_the_scaler_skips_the_step(
    rows: Rows, tmp_path: Path, precision: str, loss: float, ends: bool
) -> None:
    """Step 5 is the second one of the second epoch of this call, which begins after two epochs."""
    config = SimpleNamespace(
        run=SimpleNamespace(world_size=1, precision=precision),
        options=TrainOptions(),
        steps_per_epoch=3,
    )
    losses = LossReader(rank_sources(tmp_path, [0]))
    watch = trainer._Watch(cast(Trainer, rows), cast(Any, config), tmp_path, losses)
    record = watch._loss_record(LossLine(step=5, samples=4, loss_sum=4 * loss))
    assert (record.epoch, record.step) == (4, 2)
    assert record.loss == (2.5 if loss == 2.5 else None)
    assert (watch._diverged is not None) == ends
    if watch._diverged is not None:
        assert watch._diverged.message == f"the loss of epoch 4 is {loss}"
