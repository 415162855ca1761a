"""Another optimizer or number of micro-batches is other work; old rows say neither."""

from __future__ import annotations

from typing import Any

import pytest

from mgpubench.analysis.findings.catalogue import findings_of
from mgpubench.analysis.findings.kind import MeasuredRun
from mgpubench.analysis.groups import group_of, group_records
from mgpubench.analysis.metrics import summarize
from mgpubench.results.parse import RUN_ROWS
from mgpubench.results.session_folder import RUN_COLUMNS
from tests.conftest import make_cpu_config, make_run_record


def test_a_row_that_is_older_than_the_columns_means_sgd_and_one_batch() -> None:
    old, new = make_run_record(), make_run_record(optimizer="sgd", accumulate=1)
    assert group_of(old) == group_of(new)
    assert (group_of(old).optimizer, group_of(old).accumulate) == ("sgd", 1)
    assert len(group_records([old, new])) == 1


@pytest.mark.parametrize("change", [{"optimizer": "adam"}, {"accumulate": 2}])
def test_other_work_is_another_group(change: dict[str, Any]) -> None:
    assert len(group_records([make_run_record(), make_run_record(**change)])) == 2


def test_the_columns_come_last_and_may_be_missing() -> None:
    place = RUN_COLUMNS.index("optimizer")
    assert RUN_COLUMNS[place : place + 4] == (
        *("optimizer", "accumulate", "skipped_steps", "warmup_s"),
    )
    header = ("schema_version", "status", "mode", "num_devices", "throughput_samples_per_s")
    record = RUN_ROWS.parse_row(header, ("1", "ok", "ddp", "2", "10"))
    assert (record.optimizer, record.accumulate, record.skipped_steps) == ("", None, None)


def test_skipped_steps_are_those_of_a_rank_and_not_of_all_together(rank_record: Any) -> None:
    config = make_cpu_config(steps=2, warmup_steps=0)
    ranks = [rank_record([1.0, 1.0], rank=rank, skipped_steps=1) for rank in (0, 1)]
    assert summarize(config, ranks).skipped_steps == 1


@pytest.mark.parametrize(("loss", "fires"), [(6.9, False), (float("inf"), True)])
def test_the_finding_about_the_loss_looks_at_the_last_update(
    rank_record: Any, loss: float, fires: bool
) -> None:
    config = make_cpu_config(steps=2, warmup_steps=0)
    ranks = [rank_record([1.0, 1.0], skipped_steps=1, final_loss=loss)]
    found = findings_of(MeasuredRun(config, ranks, summarize(config, ranks)))
    assert ("loss-not-finite" in {finding.code for finding in found}) == fires
