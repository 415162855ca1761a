"""The environment variables that change how fast training is."""

from __future__ import annotations

import pytest

from mgpubench.machine.environment import omp_num_threads, recorded_environment


@pytest.mark.parametrize(
    ("value", "threads"),
    [
        ("3", 3),
        (" 3 ", 3),
        ("4,2", 4),  # nested levels: ours is the outer one
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


def test_only_variables_on_the_list_are_recorded() -> None:
    recorded = {"OMP_NUM_THREADS": "2", "NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "0"}
    private = {"HOME": "/x", "NCCL_TOPO_FILE": "/x/topo.xml", "MY_OMP_NUM_THREADS": "1"}
    assert recorded_environment({**recorded, **private}) == recorded
