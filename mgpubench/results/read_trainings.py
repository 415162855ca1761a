"""Reading trainings: the epochs that count, and a warning for everything else.

As with runs, what can be read is used even if something else cannot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mgpubench.errors import ResultsUnreadable
from mgpubench.format import format_count
from mgpubench.results.csv_reader import read_records
from mgpubench.results.find import find_all, sum_up
from mgpubench.results.row_format import (
    RowFault,
    check_mode,
    check_not_negative,
    check_ratio,
    check_throughput,
    make_format,
    number_columns,
)
from mgpubench.results.training import EPOCHS_CSV, EpochRecord
from mgpubench.results.training_facts import TrainingFacts, read_facts


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """One training, with the epochs that count."""

    folder: Path
    facts: TrainingFacts
    epochs: tuple[EpochRecord, ...]
    """In their order, each once. A number is missing if its row cannot be used."""
    lost_epochs: int = 0
    """Epochs that had no checkpoint when the training was interrupted, and were trained again."""


@dataclass(frozen=True, slots=True)
class TrainingsRead:
    """The trainings that were read, and a line about everything that was left out."""

    trainings: list[Training]
    """Those without a finished epoch too."""
    warnings: list[str]


def read_trainings(paths: Sequence[Path]) -> TrainingsRead:
    """Read the folders of trainings, roots of them, and epochs.csv files, each file once.

    Raises:
        ResultsUnreadable: if nothing in any of the paths can be read.
    """
    files, refusals = find_all(paths, EPOCHS_CSV)
    found: dict[str, Training] = {}
    warnings = []
    for file in files:
        try:
            training, about = read_training(file)
        except ResultsUnreadable as refusal:
            refusals.append(refusal)
            continue
        warnings += about
        known = found.setdefault(training.facts.session_id, training)
        if known is not training:
            warnings.append(f"{file}: left out, since it was already read from {known.folder}")
    if refusals and not found:
        raise sum_up(refusals)
    return TrainingsRead(
        list(found.values()), [*(refusal.message for refusal in refusals), *warnings]
    )


def read_training(file: Path) -> tuple[Training, list[str]]:
    """The training of an epochs.csv, and a line about each row that was left out.

    Raises:
        ResultsUnreadable: if the file or the session.json beside it cannot be used.
    """
    records, warnings = read_records(file, EPOCH_ROWS)
    facts = read_facts(file.parent)
    others = {record.session_id for record in records} - {"", facts.session_id}
    if others:
        raise ResultsUnreadable(
            f"{file} has epochs of {', '.join(sorted(others))}, and the session.json beside it is "
            f"that of {facts.session_id}",
            "Put the files back into the folder that they were written to.",
        )
    if len({record.global_batch for record in records}) > 1:
        raise ResultsUnreadable(f"{file} has epochs with different global batches")
    counting = _that_count(records)
    epochs = _once(counting)
    if left_out := len({record.epoch for record in counting}) - len(epochs):
        warnings.append(
            f"{file}: left out {format_count(left_out, 'epoch')} with rows that contradict each "
            "other"
        )
    training = Training(
        folder=file.parent,
        facts=facts,
        epochs=epochs,
        lost_epochs=len(set(records)) - len(set(counting)),
    )
    return training, warnings


def _that_count(records: Sequence[EpochRecord]) -> list[EpochRecord]:
    """The epochs behind the last weights: from where a sitting begins, those before are lost."""
    begins: dict[int, int] = {}
    for record in records:
        begins[record.sitting] = min(record.epoch, begins.get(record.sitting, record.epoch))
    return [
        record
        for record in records
        if all(
            sitting <= record.sitting or begin > record.epoch for sitting, begin in begins.items()
        )
    ]


def _once(records: Sequence[EpochRecord]) -> tuple[EpochRecord, ...]:
    """Each epoch in its order, but none that has several rows with different figures."""
    by_epoch: defaultdict[int, set[EpochRecord]] = defaultdict(set)
    for record in records:
        by_epoch[record.epoch].add(record)
    return tuple(rows.pop() for _, rows in sorted(by_epoch.items()) if len(rows) == 1)


def _check(record: EpochRecord) -> None:
    """Refuse a row that contradicts itself, before a wrong figure gets into a table."""
    for column in ("epoch", "num_devices", "global_batch", "sitting"):
        if getattr(record, column) < 1:
            raise RowFault(f"{column} is {getattr(record, column)}")
    check_not_negative(record, _NUMBERS)
    check_mode(record.mode, record.effective_mode)
    check_throughput(record.throughput_samples_per_s)
    if record.train_s == 0:
        raise RowFault(f"samples / train_s is {record.samples} / {record.train_s!r}")
    check_ratio(record, "throughput_samples_per_s", "samples", "train_s")
    for column in ("top1", "top5"):
        share = getattr(record, column)
        if share is not None and share > 1:
            raise RowFault(f"{column} is {share!r}, and cannot be above 1")


_NUMBERS = number_columns(EpochRecord)

EPOCH_ROWS = make_format(EpochRecord, _check)
"""How the rows of epochs.csv are read."""
