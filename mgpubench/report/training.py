"""What a person sees of a training: progress while it runs, and a table of its epochs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from mgpubench.config.train_config import TrainConfig
from mgpubench.format import (
    format_count,
    format_duration,
    format_loss,
    format_percent,
    format_rate,
)
from mgpubench.report.columns import Column
from mgpubench.report.console import open_console
from mgpubench.report.live import Lines, LiveLines
from mgpubench.report.tables import print_table
from mgpubench.results.telemetry import Sample
from mgpubench.results.training import EpochRecord, LossRecord


class TrainingProgress:
    """A `session.trainer.TrainDisplay` on stderr: a bar on a terminal, plain lines in a pipe."""

    def __init__(self, live: Lines | None = None) -> None:
        self._live: Lines = LiveLines() if live is None else live
        self._config: TrainConfig | None = None
        self._began_s = time.monotonic()
        self._first_epoch = 0

    def notice(self, text: str) -> None:
        """Print a line that begins with `note:`."""
        self._line(f"note: {text}")

    def begin(self, config: TrainConfig, first_epoch: int) -> None:
        """Start the bar over all epochs that are to come."""
        self._config = config
        self._began_s = time.monotonic()
        self._first_epoch = first_epoch
        epochs = config.options.epochs - first_epoch
        self._line(
            f"{config.run.label}: {format_count(epochs, 'epoch')} of "
            f"{format_count(config.steps_per_epoch, 'step')}, batch {config.run.global_batch}"
        )
        total = epochs * config.steps_per_epoch
        self._live.update(
            total=total,
            description=f"training {config.run.label}",
            samples_per_step=config.run.global_batch,
        )

    def on_steps(self, steps: int, pace_s: float | None) -> None:
        """Show the steps done, and the images per second."""
        if self._config is None:
            return
        rate = format_rate(self._config.run.global_batch / pace_s if pace_s else None)
        self._live.update(completed=steps, rate=f"{rate} images/s")

    def on_devices(self, latest: Mapping[str, Sample]) -> None:
        """Show the devices, if there is a screen."""
        self._live.show_devices(latest)

    def on_loss(self, record: LossRecord) -> None:
        """Print a line of loss."""
        steps = self._config.steps_per_epoch if self._config else 0
        self._line(
            f"epoch {record.epoch}, step {record.step} of {steps}: "
            f"loss {format_loss(record.loss)}, lr {record.lr:.3g}"
        )

    def on_epoch(self, record: EpochRecord) -> None:
        """Print a line about a finished epoch."""
        parts = [
            f"loss {record.train_loss:.4f}" if record.train_loss is not None else "",
            f"{format_rate(record.throughput_samples_per_s)} images/s",
            f"top-1 {format_percent(record.top1)}" if record.top1 is not None else "",
            f"top-5 {format_percent(record.top5)}" if record.top5 is not None else "",
            self._left(record.epoch),
        ]
        self._line(f"epoch {record.epoch}: {', '.join(part for part in parts if part)}")

    def close(self) -> None:
        """Remove the bar."""
        self._live.close()

    def _left(self, epoch: int) -> str:
        if self._config is None:
            return ""
        left = self._config.options.epochs - epoch
        done = epoch - self._first_epoch
        elapsed_s = time.monotonic() - self._began_s
        return f"{format_duration(elapsed_s / done * left)} left" if left and done > 0 else ""

    def _line(self, text: str) -> None:
        self._live.line(text)


def print_epochs(records: Sequence[EpochRecord]) -> None:
    """Print the epochs of a training."""
    columns = [
        Column("epoch", [str(record.epoch) for record in records]),
        Column("mode", [record.mode for record in records], is_number=False),
        Column("devices", [str(record.num_devices) for record in records]),
        Column("images/s", [format_rate(record.throughput_samples_per_s) for record in records]),
        Column("loss", [format_loss(record.train_loss) for record in records]),
        Column("lr", [f"{record.lr:.3g}" for record in records]),
        Column("top-1", [format_percent(record.top1) for record in records]),
        Column("top-5", [format_percent(record.top5) for record in records]),
        Column("seconds", [format_duration(record.train_s) for record in records]),
    ]
    print_table(columns, open_console())
