"""Rows of several machines: apart from those of one, and their efficiency by hand."""

from __future__ import annotations

from typing import Any

import pytest

from mgpubench.analysis.compare import compare
from mgpubench.analysis.metrics import node_efficiency
from mgpubench.analysis.row import DP, Row
from mgpubench.report.columns import comparison_columns, row_place
from mgpubench.results.schema import RunRecord
from tests.conftest import make_run_record

TWO = {"num_nodes": 2, "device_names": "2x NVIDIA X | 2x NVIDIA X"}


def table(*records: RunRecord, **options: Any) -> dict[tuple[str, int, int], Row]:
    rows = compare(records, options.get("baseline"), 0.02)
    return {(row.mode, row.num_nodes, row.num_devices): row for row in rows}


def test_the_efficiency_over_machines_by_hand() -> None:
    # 700 samples/s on 2 machines, and 400 on one of them: 700 / (2 * 400).
    assert node_efficiency(700.0, 400.0, 2) == 0.875


def test_equal_machines_are_one_group_with_one_of_them() -> None:
    rows = table(
        make_run_record("single", 100.0),
        make_run_record("ddp", 400.0, num_devices=4, num_nodes=1),
        make_run_record("ddp", 700.0, num_devices=8, **TWO),
    )
    assert len({row.group for row in rows.values()}) == 1
    both = rows["ddp", 2, 8]
    assert both.node_efficiency == pytest.approx(0.875)
    assert both.speedup == pytest.approx(7.0)
    assert both.scaling_efficiency == pytest.approx(7 / 8)
    assert rows["ddp", 1, 4].node_efficiency is None
    assert rows["single", 1, 1].node_efficiency is None


def test_without_one_machine_there_is_no_such_efficiency() -> None:
    rows = table(
        make_run_record("ddp", 300.0, num_devices=2, num_nodes=1),
        make_run_record("ddp", 700.0, num_devices=8, **TWO),
    )
    assert rows["ddp", 2, 8].node_efficiency is None


def test_uneven_machines_have_no_such_efficiency() -> None:
    rows = table(
        make_run_record("ddp", 300.0, num_devices=1, num_nodes=1),
        make_run_record("ddp", 700.0, num_devices=3, **TWO),
    )
    assert rows["ddp", 2, 3].node_efficiency is None


def test_as_many_devices_in_one_and_in_two_machines_are_two_rows() -> None:
    rows = table(
        make_run_record("ddp", 400.0, num_devices=4, num_nodes=1),
        make_run_record("ddp", 300.0, num_devices=4, **TWO),
    )
    assert {key: row.throughput_samples_per_s for key, row in rows.items()} == {
        ("ddp", 1, 4): pytest.approx(400.0),
        ("ddp", 2, 4): pytest.approx(300.0),
    }


def test_dp_on_one_machine_is_no_baseline_of_ddp_on_two() -> None:
    rows = table(
        make_run_record("dp", 200.0, num_devices=4),
        make_run_record("ddp", 300.0, num_devices=4, **TWO),
        baseline=DP,
    )
    versus = rows["ddp", 2, 4].versus_baseline
    assert versus is not None
    assert versus.comparison is None


def test_machines_with_other_gpus_are_another_group() -> None:
    rows = table(
        make_run_record("single", 100.0),
        make_run_record(
            "ddp",
            400.0,
            num_devices=4,
            num_nodes=2,
            device_names="2x NVIDIA X | 2x NVIDIA Y",
        ),
    )
    assert rows["ddp", 2, 4].speedup is None


def test_the_table_shows_machines_only_if_there_are_several() -> None:
    one = table(make_run_record("single"), make_run_record("ddp", 190.0))
    two = table(make_run_record("single"), make_run_record("ddp", 380.0, num_devices=4, **TWO))
    assert "machines" not in [column.header for column in comparison_columns(list(one.values()))]
    columns = {column.header: column.cells for column in comparison_columns(list(two.values()))}
    assert columns["machines"] == ["1", "2"]
    assert row_place(two["ddp", 2, 4]) == "ddp on 4 devices of 2 machines"
