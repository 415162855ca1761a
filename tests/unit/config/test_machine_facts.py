"""By what a machine is identified, and how many threads its user wants."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mgpubench.config.machine_facts import Machine, omp_num_threads


def test_a_machine_is_identified_by_cpu_cores_and_gpus(
    machine: Callable[..., Machine],
) -> None:
    prints = {
        machine(2).fingerprint,
        machine(1).fingerprint,
        machine(2, usable_cores=8).fingerprint,
        machine(2, cpu_model="CPU Z").fingerprint,
    }
    assert len(prints) == 4
    assert all(len(text) == 8 and int(text, 16) >= 0 for text in prints)


def test_versions_do_not_make_another_machine(machine: Callable[..., Machine]) -> None:
    assert machine(2, driver_version="1").fingerprint == machine(2).fingerprint


@pytest.mark.parametrize(
    ("value", "threads"),
    [
        ("3", 3),
        (" 3 ", 3),
        ("4,2", 4),  # nested levels: ours is the outer one
        ("1024", 1024),
        ("1025", None),
        ("", None),
        ("0", None),
        ("-1", None),
        ("two", None),
        (",2", None),
    ],
)
def test_omp_num_threads_is_a_positive_number_or_nothing(value: str, threads: int | None) -> None:
    assert omp_num_threads({"OMP_NUM_THREADS": value}) == threads


def test_omp_num_threads_may_be_unset() -> None:
    assert omp_num_threads({}) is None
