"""Which sessions answer the question if none is named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mgpubench.analysis.groups import GROUP_KEY, Group, group_records, hides_gpus
from mgpubench.config.types import DEFAULT_MODES, MODES
from mgpubench.errors import NoUsableResults
from mgpubench.results.merge import Reading
from mgpubench.results.read import count_sessions, read_sessions, sessions_newest_first
from mgpubench.results.schema import RunRecord

SAME_QUESTION = ("device_type", "device_models", "model", "data", "variants")
"""Fields of a group that a person varies on purpose. Sessions that differ in others alone were
probably meant to be compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Other:
    """A session with a mode that is lacking, which is different work in some fields."""

    folder: Path
    modes: tuple[str, ...]
    differences: dict[str, tuple[object, object]]
    """Its value, and that of the newest session, by the field of a group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The sessions to compare, and the modes that each of them is used for."""

    modes: dict[Path, set[str]]
    """By folder, the newest session first."""
    left_out: int
    """Sessions that are not used."""
    others: tuple[Other, ...] = ()
    """Sessions of those with modes that are lacking, for the same model and data."""

    def read(self) -> Reading:
        """The runs of the selected modes.

        Of an older session only the modes are used that the newest one lacks: otherwise it could
        take away a verdict that the newest session has by itself.
        """
        reading = read_sessions(list(self.modes))
        used = {
            session: self.modes[folder]
            for session, folder in reading.folders.items()
            if folder in self.modes
        }
        records = [
            record for record in reading.records if record.mode in used.get(record.session_id, ())
        ]
        return Reading(records, reading.warnings, reading.folders)


def select_sessions(root: Path) -> Selection:
    """The newest session, and the newest ones of the same work with the modes that it lacks.

    Only single, dp and ddp can be lacking: the others run only if they are named.

    Raises:
        ResultsUnreadable: if there is no session.
        NoUsableResults: if no session has an ok run.
    """
    modes: dict[Path, set[str]] = {}
    groups: set[Group] = set()
    lacking: set[str] = set(DEFAULT_MODES)
    unlike: list[Other] = []
    for folder, records in sessions_newest_first(root):
        by_group = group_records([record for record in records if record.is_ok])
        if not modes and by_group:
            modes[folder] = set(MODES)
            groups = set(by_group)
            lacking -= _modes_of(by_group, groups)
        elif found := lacking & _modes_of(by_group, groups):
            modes[folder] = found
            lacking -= found
        else:
            unlike += _unlike(folder, by_group, groups)
        if modes and not lacking:
            break
    if not modes:
        raise NoUsableResults(
            f"no results in {root}: no session there has a run that succeeded",
            "See the column `error` in runs.csv for the reason.",
        )
    return Selection(
        modes=modes,
        left_out=max(0, count_sessions(root) - len(modes)),
        others=tuple(_newest_of(lacking, unlike)),
    )


def _unlike(
    folder: Path, by_group: Mapping[Group, Sequence[RunRecord]], groups: set[Group]
) -> Iterator[Other]:
    """The work of a session that answers the same question, and is not equal work."""
    for group, runs in by_group.items():
        for newest in groups:
            # Two machines with GPUs of the same model may be parts of one: see `hides_gpus`.
            is_near = group.machine == newest.machine or hides_gpus([group, newest])
            if is_near and all(getattr(group, n) == getattr(newest, n) for n in SAME_QUESTION):
                yield Other(
                    folder=folder,
                    modes=tuple(dict.fromkeys(run.mode for run in runs)),
                    differences={
                        name: (theirs, ours)
                        for name in GROUP_KEY
                        if (theirs := getattr(group, name)) != (ours := getattr(newest, name))
                    },
                )


def _newest_of(lacking: set[str], unlike: Iterable[Other]) -> Iterator[Other]:
    """For each mode that is lacking the newest session that has it."""
    missing = set(lacking)
    for other in unlike:
        if found := missing.intersection(other.modes):
            missing -= found
            yield replace(other, modes=tuple(mode for mode in other.modes if mode in found))


def _modes_of(by_group: Mapping[Group, Sequence[RunRecord]], groups: set[Group]) -> set[str]:
    """The modes of the runs in some groups of equal work."""
    return {run.mode for group, runs in by_group.items() if group in groups for run in runs}
