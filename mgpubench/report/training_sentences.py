"""What a comparison of trainings says in sentences, below its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mgpubench.analysis.findings.catalogue import KINDS
from mgpubench.analysis.trainings import TrainingRow
from mgpubench.format import format_count, plain

ONE_OBSERVATION = (
    "a training is one observation: the ratios have no interval and no verdict; mgpubench run "
    "repeats the work and gives both"
)
COMMON_EPOCHS = "ratios are over the epochs that both trainings have, other figures over all"


def training_place(row: TrainingRow) -> str:
    """A training as headers name it: `ddp x2`, `dp x2 then ddp x2`."""
    return " then ".join(f"{mode} x{devices}" for mode, _, devices in row.places)


def training_name(row: TrainingRow) -> str:
    """A training as sentences name it: `ddp x2 (20260101T000000Z-abcdef)`."""
    return plain(f"{training_place(row)} ({row.session_id})")


def sentences_about(rows: Sequence[TrainingRow], to_top1: float | None) -> list[str]:
    """The sentences about the trainings of one group, in the order in which they are printed."""
    return [
        *_accuracy(rows, to_top1),
        *_baselines(rows),
        *_ratios(rows),
        *_single_trainings(rows),
        *_loaders(rows),
        *_several_machines(rows),
        *_evaluations(rows),
        *_machines(rows),
    ]


def _accuracy(rows: Sequence[TrainingRow], to_top1: float | None) -> Iterator[str]:
    """What the time to an accuracy is, and why there is none."""
    if to_top1 is None:
        return
    if not any(row.best for row in rows):
        yield "no accuracy is known: train with --split or --eval-data"
        return
    yield (
        f"seconds to {to_top1 * 100:g} % top-1: time of training up to the end of the first epoch "
        "that reached it, without evaluation and checkpoints"
    )
    for row in rows:
        if row.training.facts.is_from_checkpoint:
            yield (
                f"{training_name(row)} began with the checkpoint of another training, so its time "
                "to an accuracy is unknown"
            )


def _baselines(rows: Sequence[TrainingRow]) -> Iterator[str]:
    """Why ratios are missing."""
    against = [row.versus for row in rows if row.versus]
    name = plain(next((versus.baseline for versus in against), ""))
    if any(versus.candidates > 1 for versus in against):
        yield (
            f"several trainings are {name}: name the one to divide by with --baseline, such as "
            f"--baseline {plain(_first_of(rows, name))}"
        )
    elif len(against) == len(rows) and not any(versus.candidates for versus in against):
        is_ddp = all(row.places[0][0] == "ddp" for row in rows)
        wanted = name or ("single or dp" if is_ddp else "single, dp or ddp")
        yield f"nothing to compare with: there is no training of {wanted} here"
    elif alone := [training_name(row) for row in rows if row.versus and not row.versus.candidates]:
        yield f"no {name} on as many devices to compare with: {', '.join(alone)}"


def _first_of(rows: Sequence[TrainingRow], baseline: str) -> str:
    mode = baseline.partition("/")[0]
    return next(row.session_id for row in rows if row.places[0][0] == mode)


def _ratios(rows: Sequence[TrainingRow]) -> Iterator[str]:
    with_ratio = [row for row in rows if row.versus and row.versus.ratio is not None]
    if not with_ratio:
        return
    yield ONE_OBSERVATION
    if len({tuple(epoch.epoch for epoch in row.epochs) for row in rows}) > 1:
        yield COMMON_EPOCHS


def _single_trainings(rows: Sequence[TrainingRow]) -> Iterator[str]:
    """What is special about one training."""
    for row in rows:
        name = training_name(row)
        if len(row.places) > 1:
            yield f"{name} went on in another mode or on other devices, so it has no ratio"
        if lost := row.training.lost_epochs:
            yield (
                f"{name}: {format_count(lost, 'epoch')} had no checkpoint when it was interrupted; "
                "they were trained again, and the first time is in no figure"
            )
        if row.lacks_epochs:
            yield (
                f"{name} lacks epochs whose rows cannot be read, so its seconds are not those of "
                "the whole training"
            )


def _loaders(rows: Sequence[TrainingRow]) -> Iterator[str]:
    """Another number of loader workers may be why a training is faster."""
    counts = {
        training_place(row): sorted({epoch.loader_workers or 0 for epoch in row.epochs})
        for row in rows
        if all(epoch.loader_workers is not None for epoch in row.epochs)
    }
    if len({tuple(each) for each in counts.values()}) > 1:
        shown = ", ".join(f"{place} {'/'.join(map(str, each))}" for place, each in counts.items())
        yield (
            f"different numbers of loader workers: {shown}; --workers-per-gpu sets them for each "
            "device"
        )


def _several_machines(rows: Sequence[TrainingRow]) -> Iterator[str]:
    """As many devices on another number of machines are not the same."""
    counts = {
        training_name(row): sorted({epoch.num_nodes or 1 for epoch in row.epochs}) for row in rows
    }
    if any(max(each) > 1 for each in counts.values()):
        shown = ", ".join(f"{name} {'/'.join(map(str, each))}" for name, each in counts.items())
        yield f"numbers of machines: {shown}"


def _evaluations(rows: Sequence[TrainingRow]) -> Iterator[str]:
    """An accuracy over other images is another accuracy."""
    counts = {epoch.eval_samples for row in rows for epoch in row.epochs} - {None}
    if len(counts) > 1:
        numbers = ", ".join(map(str, sorted(count for count in counts if count)))
        yield f"accuracies are over different numbers of images: {numbers}"


def _machines(rows: Sequence[TrainingRow]) -> Iterator[str]:
    if any("cpu" in row.group.device_type for row in rows):
        yield KINDS["cpu-smoke"].table_note
