"""Trainings side by side: their figures, and how much faster one is than another.

One training is one observation, so a ratio of two has no interval and no verdict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from mgpubench.analysis.metrics import (
    best_epoch,
    seconds_to_accuracy,
    training_s,
    training_samples_per_s,
)
from mgpubench.analysis.row import Baseline, default_baseline
from mgpubench.analysis.training_groups import TRAINING_KEY, TrainingGroup, training_group
from mgpubench.config.types import MODES
from mgpubench.results.read_trainings import Training
from mgpubench.results.training import EpochRecord

Place = tuple[str, str, int]
"""Mode, effective mode and number of devices of an epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VersusTraining:
    """A training against another one."""

    baseline: str
    """Name of the baseline; empty if there is nothing to choose as one."""
    session_id: str = ""
    """The other training; empty if there is none, or more than one that could be meant."""
    ratio: float | None = None
    """The throughput divided by that of the other training, over the epochs that both have."""
    epochs: int = 0
    """Epochs that both have."""
    candidates: int = 0
    """Trainings that could be meant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRow:
    """One training in a group of equal work, with its figures."""

    group: TrainingGroup
    training: Training
    places: tuple[Place, ...]
    """Where its epochs were trained, in their order; one, unless it went on elsewhere."""
    train_s: float
    throughput_samples_per_s: float | None
    best: EpochRecord | None
    """The epoch with the best top-1; None if it was never evaluated."""
    seconds_to_accuracy: float | None
    """None if no accuracy was asked for, too."""
    versus: VersusTraining | None
    """None for the baseline itself."""

    @property
    def session_id(self) -> str:
        """The name of the training."""
        return self.training.facts.session_id

    @property
    def epochs(self) -> tuple[EpochRecord, ...]:
        """The epochs that count."""
        return self.training.epochs

    @property
    def lacks_epochs(self) -> bool:
        """True if the row of an epoch up to the last one is missing, or cannot be used."""
        first = self.epochs[0].epoch if self.training.facts.is_from_checkpoint else 1
        return len(self.epochs) <= self.epochs[-1].epoch - first


def compare_trainings(
    trainings: Sequence[Training], baseline: Baseline | None, to_top1: float | None
) -> list[TrainingRow]:
    """The rows for some trainings with epochs, in an order that does not depend on theirs.

    `baseline` None means single if it is there, else dp, else ddp. `to_top1` is the accuracy, 0 to
    1, that the time is wanted for.
    """
    groups: defaultdict[TrainingGroup, list[Training]] = defaultdict(list)
    for training in sorted(trainings, key=_order):
        groups[training_group(training)].append(training)
    return [
        _row(training, group, versus_baseline(training, groups[group], baseline), to_top1)
        for group in sorted(groups, key=_group_order)
        for training in groups[group]
    ]


def _row(
    training: Training,
    group: TrainingGroup,
    versus: VersusTraining | None,
    to_top1: float | None,
) -> TrainingRow:
    epochs = training.epochs
    return TrainingRow(
        group=group,
        training=training,
        places=places_of(training),
        train_s=training_s(epochs),
        throughput_samples_per_s=training_samples_per_s(epochs),
        best=best_epoch(epochs),
        seconds_to_accuracy=None if to_top1 is None else seconds_to_accuracy(epochs, to_top1),
        versus=versus,
    )


def places_of(training: Training) -> tuple[Place, ...]:
    """Where the epochs of a training were trained, in their order, each place once."""
    return tuple(
        dict.fromkeys(
            (epoch.mode, epoch.effective_mode or epoch.mode, epoch.num_devices)
            for epoch in training.epochs
        )
    )


def versus_baseline(
    training: Training, others: Sequence[Training], wanted: Baseline | None
) -> VersusTraining | None:
    """A training against the baseline of its group; None if it is the baseline itself."""
    baseline = _default(others) if wanted is None else wanted
    if baseline is None:
        return VersusTraining(baseline="")
    candidates = _candidates(training, others, baseline)
    if candidates == [training]:
        return None
    if len(candidates) != 1 or len(places_of(training)) > 1:
        return VersusTraining(baseline=baseline.name, candidates=len(candidates))
    (other,) = candidates
    ratio, count = _ratio(training, other)
    return VersusTraining(
        baseline=baseline.name,
        session_id=other.facts.session_id,
        ratio=ratio,
        epochs=count,
        candidates=1,
    )


def _default(trainings: Sequence[Training]) -> Baseline | None:
    everywhere = map(places_of, trainings)
    return default_baseline({places[0][0] for places in everywhere if len(places) == 1})


def _candidates(
    training: Training, others: Sequence[Training], baseline: Baseline
) -> list[Training]:
    """The trainings that the baseline of a training may mean."""
    if baseline.variant:  # the name of a training
        return [other for other in others if other.facts.session_id == baseline.variant]
    mode, _, devices = places_of(training)[0]
    alike = [
        other
        for other in others
        if len(places := places_of(other)) == 1
        if places[0][0] == baseline.mode
        if baseline.mode == "single" or places[0][2] == devices
    ]
    if baseline.options is not None:
        return [other for other in alike if other.facts.options == baseline.options]
    # Of several trainings in the baseline's mode, the one without options.
    preferred = ("",) if mode == baseline.mode else (training.facts.options, "")
    for options in preferred:
        if found := [other for other in alike if other.facts.options == options]:
            return found
    return alike


def _ratio(training: Training, other: Training) -> tuple[float | None, int]:
    """The ratio of the throughputs over the epochs that both have, and how many these are."""
    numbers = {epoch.epoch for epoch in training.epochs} & {epoch.epoch for epoch in other.epochs}
    own, its = (
        training_samples_per_s([epoch for epoch in each.epochs if epoch.epoch in numbers])
        for each in (training, other)
    )
    ratio = None if own is None or its is None else own / its
    return ratio, len(numbers)


def _order(training: Training) -> tuple[object, ...]:
    """By mode and devices, as in the table of runs, and then by age."""
    mode, effective_mode, devices = places_of(training)[0]
    ranks: dict[str, int] = {name: place for place, name in enumerate(MODES)}
    options = training.facts.options
    return ranks.get(mode, len(ranks)), devices, options, effective_mode, training.facts.session_id


def _group_order(group: TrainingGroup) -> list[tuple[bool, object]]:
    key = [getattr(group, name) for name in TRAINING_KEY]
    return [(value is None, value) for value in key]
